"""Forked workers: their own standard error, no descriptor of the parent's, and nothing left."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from coordinator.block_run import run_block
from coordinator.local_ranks import LocalRanks
from coordinator.process_table import SLACK_S, children, open_descriptors, wait_until
from coordinator.processes import Workers
from errors import MisuseError, TPError
from evidence.fork_launcher import ForkLauncher
from manifest.run_manifest import from_flags
from simulation.faulty_worker import main as faulty_worker
from wire.recorder import Recorder
from worker.main import main as worker

RUNS = 20


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No process, no descriptor, no file."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        descriptors, running = open_descriptors(), children()
        yield
        assert open_descriptors() == descriptors
        assert children() == running
        assert list(Path(folder).iterdir()) == []


def started(entry: object, *extra: str, ranks: int = 1) -> Workers:
    assert callable(entry)
    workers = Workers(ForkLauncher(entry, extra))
    workers.start(ranks, "unix:/nowhere")
    return workers


def ended(workers: Workers) -> tuple[int, str]:
    (end,) = workers.stop(int(SLACK_S * 1000))
    return end.status, end.last_words


def say_arguments(argv: list[str]) -> int:
    print(*argv, file=sys.stderr)
    return len(argv)


def test_arguments_status_and_words() -> None:
    workers = started(say_arguments, "--idle-ms", "5", ranks=2)
    ends = workers.stop(int(SLACK_S * 1000))
    assert [(end.status, end.last_words) for end in ends] == [
        (6, f"--connect unix:/nowhere --rank {rank} --idle-ms 5") for rank in range(2)
    ]


def crash(argv: list[str]) -> int:
    raise MisuseError("a bug of ours")


def leave(argv: list[str]) -> int:
    raise SystemExit("words at the end")


@pytest.mark.parametrize(
    ("entry", "said"), [(crash, "MisuseError: a bug of ours"), (leave, "words at the end")]
)
def test_why_it_ended_is_not_lost(entry: object, said: str) -> None:
    """And it ends at once, never in the parent's stack."""
    status, words = ended(started(entry))
    assert status not in (0, 3)
    assert said in words


def test_a_flood_of_words_blocks_nobody() -> None:
    def flood(argv: list[str]) -> int:
        for _ in range(3000):
            print("x" * 999, file=sys.stderr)
        return 0

    status, words = ended(started(flood))
    assert status == 0
    assert 0 < len(words) <= 4096


def test_the_parents_descriptors_are_not_the_workers() -> None:
    reading, writing = os.pipe()

    def look(argv: list[str]) -> int:
        print(sorted(entry.split()[0] for entry in open_descriptors()), file=sys.stderr)
        return 0

    status, words = ended(started(look))
    os.close(reading)
    os.close(writing)
    assert (status, words) == (0, "['0', '1', '2']")


def sleep(argv: list[str]) -> int:
    time.sleep(600)
    return 0


def test_waiting_and_killing() -> None:
    workers = started(sleep, ranks=2)
    assert workers.ended() == []
    os.kill(workers.pids[0], signal.SIGSTOP)
    ends = workers.stop(100)
    assert [(end.status, end.killed) for end in ends] == [(-signal.SIGKILL, True)] * 2


def test_one_that_was_killed_by_somebody_else() -> None:
    workers = started(sleep)
    os.kill(workers.pids[0], signal.SIGKILL)
    assert wait_until(lambda: len(workers.ended()) == 1)
    (end,) = workers.stop(0)
    assert (end.status, end.killed) == (-signal.SIGKILL, False)


def test_no_process_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> NoReturn:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(os, "fork", refuse)
    with pytest.raises(TPError) as failure:
        started(sleep)
    assert failure.value.code == "process.start"


def run(launcher: ForkLauncher, transport: str, phase_ms: int) -> str | None:
    """One run of the block; the code of its failure."""
    flags = {"ranks": "2", "batch": "1", "sequence": "2", "transport": transport}
    manifest = from_flags(flags | {"deadlines.phase_ms": str(phase_ms)})
    with LocalRanks(manifest, launcher) as ranks:
        outcome = run_block(manifest, lambda recorder: ranks.connect(recorder).links, Recorder())
        ranks.stop(0 if outcome.failure else manifest.deadlines.close_ms)
    return outcome.failure.code if outcome.failure else None


def test_many_runs_leave_nothing() -> None:
    """Whatever their ends: the fixture counts processes, descriptors and files afterwards."""
    faults = ("rank_exit", "checksum_corruption", "delay", "stale_epoch")
    found = []
    for number in range(RUNS):
        transport, phase_ms = ("unix", "tcp")[number % 2], 60_000
        if number % 4 == 0:
            fault = faults[number // 4 % len(faults)]
            where = ("--fault-rank", "1", "--fault-phase", "attention", "--ranks", "2")
            launcher = ForkLauncher(faulty_worker, ("--fault", fault, *where))
            phase_ms = 500 if fault == "delay" else phase_ms
        else:
            launcher = ForkLauncher(worker)
        found.append(run(launcher, transport, phase_ms))
    failures = [code for code in found if code is not None]
    assert failures == [
        "protocol.closed",
        "protocol.checksum",
        "deadline.receive",
        "contract.epoch",
        "protocol.closed",
    ]
