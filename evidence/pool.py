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
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from errors import EvidenceError, TPError
from evidence.matrix import FAULT_CODES, Case
from evidence.package import LEDGER, OUTPUT, TAPE
from evidence.record import CaseRun
from evidence.runner import run_case
from evidence.stored_run import stored_run

_INDEX = struct.Struct("!H")
# Files of a finished case beside those of the package.
_SECONDS: Final = "seconds"
_FAILED: Final = "failed"
Progress = Callable[[int, int, str], None]


class Finished(NamedTuple):
    """A case that ended as it must, and how long it took; the evidence holds no times."""

    run: CaseRun
    seconds: float


def run_cases(cases: Sequence[Case], jobs: int, progress: Progress) -> list[Finished]:
    """Run all cases with `jobs` processes; progress(done, total, case id) after each.

    Raises EvidenceError with the first case that did not end as it must.
    """
    results = try_cases(cases, jobs, progress)
    failures = (result for result in results.values() if isinstance(result, EvidenceError))
    for failure in failures:
        raise failure
    return [result for result in results.values() if isinstance(result, Finished)]


def try_cases(
    cases: Sequence[Case], jobs: int, progress: Progress
) -> Mapping[str, Finished | EvidenceError]:
    """As `run_cases`, but every case is run, and what is wrong with one is its result."""
    order = _order(cases)
    with tempfile.TemporaryDirectory(prefix="rankproof-evidence-") as folder:
        results = Path(folder)
        tasks, done, pids = _start_jobs(cases, order, jobs, results)
        try:
            _follow(done, cases, progress)
        finally:
            os.close(tasks)
            os.close(done)
            statuses = _reap(pids)
        if any(statuses):
            raise TPError("evidence.job", f"a job process ended with {max(statuses, key=abs)}")
        return {case.case_id: _read(results / case.case_id, case) for case in cases}


def _order(cases: Sequence[Case]) -> list[int]:
    """Case numbers in the order of their start.

    Cases that must time out sleep most of their time. Dealt out among the first three quarters of
    the others, they leave the cores to those, and none of them is waited for at the end.
    """
    waiting = [index for index, case in enumerate(cases) if _times_out(case)]
    order = [index for index, case in enumerate(cases) if not _times_out(case)]
    spacing = 3 * len(order) / (4 * max(1, len(waiting)))
    for number, index in enumerate(waiting):
        order.insert(int(number * (spacing + 1)), index)
    return order


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
            _run_one(cases[index], results / cases[index].case_id)
            os.write(done, piece)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        # Never back into the parent's stack: its open files and exit handlers are not ours.
        sys.stderr.flush()
        os._exit(status)


def _run_one(case: Case, folder: Path) -> None:
    folder.mkdir()
    started = time.perf_counter()
    try:
        run = run_case(case)
    except TPError as failure:
        (folder / _FAILED).write_text(failure.diagnostics())
        return
    (folder / _SECONDS).write_text(str(time.perf_counter() - started))
    (folder / LEDGER).write_bytes(run.ledger)
    (folder / TAPE).write_bytes(run.tape)
    if run.output is not None:
        (folder / OUTPUT).write_bytes(run.output)


def _read(folder: Path, case: Case) -> Finished | EvidenceError:
    failed, output = folder / _FAILED, folder / OUTPUT
    if failed.exists():
        return EvidenceError("case.outcome", failed.read_text(), case_id=case.case_id)
    run = stored_run(
        case,
        (folder / LEDGER).read_bytes(),
        (folder / TAPE).read_bytes(),
        output.read_bytes() if output.exists() else None,
    )
    return Finished(run, float((folder / _SECONDS).read_text()))


def _follow(done: int, cases: Sequence[Case], progress: Progress) -> None:
    """Report each finished case until every job has closed its end."""
    count = 0
    while piece := os.read(done, _INDEX.size):
        count += 1
        progress(count, len(cases), cases[_INDEX.unpack(piece)[0]].case_id)


def _reap(pids: Sequence[int]) -> list[int]:
    """Every job has ended or ends now: its task pipe is empty or its pipes are gone."""
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
