"""Running many cases side by side: job processes that take case numbers from a pipe.

A job runs its cases one after the other, each with fresh worker processes, and hands the results
back as files in a folder of its own. Nothing is pickled and no lock is shared: reading two bytes
from a pipe is atomic.
"""

from __future__ import annotations

import os
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from errors import EvidenceError, PeerError, TPError
from errors.tree import ContractError, DeadlineError, ProtocolError
from evidence.matrix import FAULT_CODES, Case
from evidence.record import CaseRun
from evidence.runner import run_case
from wire.canonical import decode_canonical, encode_canonical
from wire.ledger import read_ledger

_INDEX = struct.Struct("!H")
_FAILURES: dict[str, type[PeerError]] = {
    kind.family: kind for kind in (ProtocolError, ContractError, DeadlineError)
}
Progress = Callable[[int, int, str], None]


class Finished(NamedTuple):
    """A case that ended as it must, and how long it took; the evidence holds no times."""

    run: CaseRun
    seconds: float


def run_cases(cases: Sequence[Case], jobs: int, progress: Progress) -> list[Finished]:
    """Run all cases with `jobs` processes; progress(done, total, case id) after each.

    Raises EvidenceError or another TPError with the first case that did not end as it must.
    """
    # Cases that must time out sleep most of their time: started first, they overlap the rest.
    order = sorted(range(len(cases)), key=lambda index: not _times_out(cases[index]))
    with tempfile.TemporaryDirectory(prefix="rankproof-evidence-") as folder:
        results = Path(folder)
        tasks, done, pids = _start_jobs(cases, order, jobs, results)
        try:
            _follow(done, cases, progress)
        finally:
            os.close(tasks)
            os.close(done)
            statuses = _reap(pids)
        failures = sorted(results.glob("*.failed"))
        if failures:
            case_id = failures[0].stem
            raise EvidenceError("case.outcome", failures[0].read_text(), case_id=case_id)
        if any(statuses):
            raise TPError("evidence.job", f"a job process ended with {max(statuses)}")
        return [_read(results, case) for case in cases]


def _times_out(case: Case) -> bool:
    return case.fault is not None and FAULT_CODES[case.fault.kind].startswith("deadline")


def _start_jobs(
    cases: Sequence[Case], order: Sequence[int], jobs: int, results: Path
) -> tuple[int, int, list[int]]:
    """Returns the reading ends of the task and the done pipe, and the jobs' process ids."""
    tasks_read, tasks_write = os.pipe()
    done_read, done_write = os.pipe()
    os.write(tasks_write, b"".join(_INDEX.pack(index) for index in order))
    os.close(tasks_write)
    pids = []
    for _ in range(min(jobs, len(order))):
        pid = os.fork()
        if pid == 0:
            os.close(done_read)
            _job(tasks_read, done_write, cases, results)
        pids.append(pid)
    os.close(done_write)
    return tasks_read, done_read, pids


def _job(tasks: int, done: int, cases: Sequence[Case], results: Path) -> NoReturn:
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        while piece := os.read(tasks, _INDEX.size):
            (index,) = _INDEX.unpack(piece)
            _run_one(cases[index], results)
            os.write(done, piece)
        status = 0
    except TPError:
        status = 3
    finally:
        sys.stderr.flush()
        os._exit(status)


def _run_one(case: Case, results: Path) -> None:
    started = time.perf_counter()
    try:
        run = run_case(case)
    except TPError as failure:
        (results / f"{case.case_id}.failed").write_text(failure.diagnostics())
        raise
    folder = results / case.case_id
    folder.mkdir()
    (folder / "seconds").write_text(str(time.perf_counter() - started))
    (folder / "ledger").write_bytes(run.ledger)
    (folder / "tape").write_bytes(run.tape)
    if run.output is not None:
        (folder / "output").write_bytes(run.output)
    if run.failure is not None:
        (folder / "failure").write_bytes(_failure_bytes(run.failure))


def _failure_bytes(failure: PeerError) -> bytes:
    return encode_canonical(
        {
            "family": failure.family,
            "message": failure.message,
            "phase": failure.phase,
            "rank": failure.rank,
            "reason": failure.reason,
        }
    )


def _read(results: Path, case: Case) -> Finished:
    folder = results / case.case_id
    ledger = (folder / "ledger").read_bytes()
    output, failure = folder / "output", folder / "failure"
    run = CaseRun(
        case=case,
        entries=tuple(read_ledger(ledger)),
        ledger=ledger,
        tape=(folder / "tape").read_bytes(),
        output=output.read_bytes() if output.exists() else None,
        failure=_read_failure(failure.read_bytes()) if failure.exists() else None,
    )
    return Finished(run, float((folder / "seconds").read_text()))


def _read_failure(data: bytes) -> PeerError:
    value = decode_canonical(data)
    rank = value["rank"]
    kind = _FAILURES[str(value["family"])]
    return kind(
        str(value["reason"]),
        str(value["message"]),
        rank=rank if isinstance(rank, int) else None,
        phase=str(value["phase"]),
    )


def _follow(done: int, cases: Sequence[Case], progress: Progress) -> None:
    """Report each finished case until every job has closed its end."""
    count = 0
    while piece := os.read(done, _INDEX.size):
        count += 1
        progress(count, len(cases), cases[_INDEX.unpack(piece)[0]].case_id)


def _reap(pids: Sequence[int]) -> list[int]:
    """Every job has ended or ends now: its task pipe is empty or its pipes are gone."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
