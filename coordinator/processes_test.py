"""Started processes: how they start and end, and that none is left whatever happens."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator import processes
from coordinator.interruption import Interruption
from coordinator.last_words import BYTES_MAX
from coordinator.process_table import (
    SLACK_S,
    children,
    is_running,
    open_descriptors,
    process_state,
    wait_until,
)
from coordinator.processes import ExecLauncher, Workers
from errors import TPError

# A process that ends does so far sooner, a process that does not is killed after this.
GRACE_MS = 300
SLEEP = "import time; time.sleep(600)"


def launcher(script: str) -> ExecLauncher:
    """The script finds --connect ADDRESS --rank R in sys.argv[1:]."""
    return ExecLauncher((sys.executable, "-I", "-c", script), {"LC_ALL": "C.UTF-8"})


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    descriptors, running = open_descriptors(), children()
    yield
    assert open_descriptors() == descriptors
    assert children() == running


def started(script: str, ranks: int) -> Workers:
    workers = Workers(launcher(script))
    workers.start(ranks, "unix:/nowhere")
    return workers


def test_the_command_line_and_the_whole_environment() -> None:
    show = "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], sys.stderr)"
    own = launcher(show)
    workers = Workers(ExecLauncher(own.argv, own.env, ("--idle-ms", "5")))
    workers.start(2, "tcp:127.0.0.1:7")
    exits = workers.stop(int(SLACK_S * 1000))
    for rank, end in enumerate(exits):
        argv = ["--connect", "tcp:127.0.0.1:7", "--rank", str(rank), "--idle-ms", "5"]
        assert json.loads(end.last_words) == [argv, {"LC_ALL": "C.UTF-8"}]
    assert {end.rank: end.pid for end in exits} == workers.pids


@pytest.mark.parametrize(
    ("script", "status"),
    [("", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", -9)],
)
def test_how_a_process_ended(script: str, status: int) -> None:
    (end,) = started(script, 1).stop(int(SLACK_S * 1000))
    assert (end.rank, end.status, end.killed) == (0, status, False)


def test_a_traceback_is_kept() -> None:
    (end,) = started("import nothing_of_this_name", 1).stop(int(SLACK_S * 1000))
    assert end.status == 1
    assert "No module named 'nothing_of_this_name'" in end.last_words


def test_a_talkative_process_is_not_held_up() -> None:
    talk = "import sys; [sys.stderr.write('x' * 999 + chr(10)) for _ in range(9000)]"
    (end,) = started(talk, 1).stop(int(SLACK_S * 1000))
    assert (end.status, end.killed) == (0, False)
    assert 0 < len(end.last_words) <= BYTES_MAX


def missing(folder: Path) -> Path:
    return folder / "missing"


def not_executable(folder: Path) -> Path:
    path = folder / "not_executable"
    path.write_bytes(b"text")
    path.chmod(0o600)
    return path


def a_folder(folder: Path) -> Path:
    return folder


@pytest.mark.parametrize("program", [missing, not_executable, a_folder])
def test_a_program_that_cannot_start(tmp_path: Path, program: Callable[[Path], Path]) -> None:
    path = program(tmp_path)
    workers = Workers(ExecLauncher((str(path),), {}))
    with pytest.raises(TPError) as failure:
        workers.start(2, "unix:/nowhere")
    assert failure.value.code == "process.start"
    assert str(path) in failure.value.message
    assert workers.stop(0) == []


def test_without_descriptors_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> int:
        raise OSError(24, os.strerror(24))

    monkeypatch.setattr(os, "memfd_create", none)
    with pytest.raises(TPError) as failure:
        Workers(launcher("")).start(1, "unix:/nowhere")
    assert failure.value.code == "process.start"


def test_those_that_ended_uninvited() -> None:
    leave = "import sys, time; sys.argv[-1] in '13' and sys.exit('left'); time.sleep(600)"
    workers = started(leave, 4)
    assert wait_until(lambda: len(workers.ended()) == 2)
    assert [(end.rank, end.status, end.last_words) for end in workers.ended()] == [
        (1, 1, "left"),
        (3, 1, "left"),
    ]
    workers.stop(0)


def test_the_grace_is_one_for_all() -> None:
    began = time.monotonic()
    workers = started(SLEEP, 4)
    exits = workers.stop(GRACE_MS)
    assert [(end.rank, end.status, end.killed) for end in exits] == [
        (rank, -signal.SIGKILL, True) for rank in range(4)
    ]
    assert GRACE_MS / 1000 <= time.monotonic() - began < SLACK_S
    assert [process_state(end.pid) for end in exits] == [None] * 4


def test_without_grace_a_stopped_process_is_killed_too() -> None:
    workers = started(SLEEP, 2)
    os.kill(workers.pids[0], signal.SIGSTOP)
    assert [end.killed for end in workers.stop(0)] == [True, True]


def test_who_leaves_in_time_is_not_killed() -> None:
    script = f"import sys; sys.argv[-1] == '1' and sys.exit(0); {SLEEP}"
    workers = started(script, 2)
    assert wait_until(lambda: len(workers.ended()) == 1)
    exits = workers.stop(GRACE_MS)
    assert [(end.rank, end.killed) for end in exits] == [(0, True), (1, False)]


def test_stopping_again_changes_nothing() -> None:
    workers = started("raise SystemExit('words')", 2)
    exits = list(workers.stop(int(SLACK_S * 1000)))
    assert workers.stop(0) == exits
    assert workers.ended() == []


class Scripted:
    """A process that does what a test wants of it."""

    def __init__(self, rank: int, journal: list[str]) -> None:
        self.rank = rank
        self.pid = 1000 + rank
        self.dies = True
        self.interrupts = False
        self.status: int | None = None
        self._journal = journal

    def poll(self) -> int | None:
        return self.status

    def wait(self, deadline: float) -> int | None:
        if self.interrupts:
            self.interrupts = False
            raise Interruption(signal.SIGINT)
        return self.status

    def kill(self) -> None:
        self._journal.append(f"kill {self.rank}")
        if self.dies:
            self.status = -signal.SIGKILL

    def last_words(self) -> str:
        return ""

    def close(self) -> None:
        self._journal.append(f"close {self.rank}")


class ScriptedLauncher:
    def __init__(self) -> None:
        self.journal: list[str] = []
        self.processes: list[Scripted] = []
        self.fails_at: int | None = None

    def start(self, rank: int, address: str) -> Scripted:
        if rank == self.fails_at:
            raise TPError("process.start", "no more processes")
        self.processes.append(Scripted(rank, self.journal))
        return self.processes[-1]


def test_one_that_cannot_be_killed_does_not_save_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "KILL_MS", 1)
    scripted = ScriptedLauncher()
    workers = Workers(scripted)
    workers.start(3, "unix:/nowhere")
    scripted.processes[0].dies = False
    with pytest.raises(TPError) as failure:
        workers.stop(0)
    assert failure.value.code == "process.unkillable"
    assert "1000 of rank 0" in failure.value.message
    assert scripted.journal == ["kill 0", "kill 1", "kill 2", "close 1", "close 2"]
    assert [end.rank for end in workers.exits] == [1, 2]


def test_an_interrupted_stop_is_finished_by_the_next() -> None:
    scripted = ScriptedLauncher()
    workers = Workers(scripted)
    workers.start(2, "unix:/nowhere")
    scripted.processes[1].interrupts = True
    with pytest.raises(Interruption):
        workers.stop(GRACE_MS)
    assert [end.rank for end in workers.stop(0)] == [0, 1]
    assert scripted.journal == ["kill 0", "kill 1", "close 0", "close 1"]


def test_a_start_that_fails_half_way_leaves_what_started_to_stop() -> None:
    scripted = ScriptedLauncher()
    scripted.fails_at = 2
    workers = Workers(scripted)
    with pytest.raises(TPError):
        workers.start(4, "unix:/nowhere")
    assert [end.rank for end in workers.stop(0)] == [0, 1]


def test_the_proof_can_fail() -> None:
    """The checks of this file see a process that is left, and a zombie."""
    workers = started(SLEEP, 1)
    pid = workers.pids[0]
    assert is_running(pid)
    assert pid in children()
    os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not is_running(pid))
    assert process_state(pid) is not None
    workers.stop(0)
    assert process_state(pid) is None
