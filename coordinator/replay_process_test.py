"""A replayed worker is a real process: it connects, answers, and is gone afterwards."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from coordinator.fake_rank import record_run
from coordinator.processes import ExecLauncher, Launcher, WorkerProcess
from coordinator.recording import read_recording
from coordinator.replay_process import worker_process
from coordinator.replay_worker import replay_worker
from coordinator.run_files import RunFiles
from errors import ProtocolError
from manifest.run_manifest import Deadlines, from_flags
from wire.link import Pipe

SERVE = """
import sys
import time
from coordinator.fake_rank import FakePipe
from wire.address import parse_address
from wire.socket_pipe import connect

rank, address = int(sys.argv[4]), parse_address(sys.argv[2])
pipe, fake = connect(address, time.monotonic() + 20), FakePipe(rank)
while True:
    answer = fake.receive(1 << 20, 0)
    if answer:
        pipe.send([answer], pipe.clock() + 20)
    data = pipe.receive(1 << 20, pipe.clock() + 20)
    if not data:
        sys.exit(0)
    fake.send([data], 0)
"""

DEADLINES = Deadlines(20_000, 20_000, 20_000, 20_000, 20_000)


class NotedLauncher:
    """Remembers what it started."""

    def __init__(self, script: str) -> None:
        # Child processes import from where this one does.
        environment = {"PYTHONPATH": os.pathsep.join(sys.path)}
        self._launcher = ExecLauncher((sys.executable, "-c", script), environment)
        self.started: list[WorkerProcess] = []

    def start(self, rank: int, address: str) -> WorkerProcess:
        process = self._launcher.start(rank, address)
        self.started.append(process)
        return process


def gone(process: WorkerProcess) -> bool:
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return True
    return False


def opened(launcher: Launcher, rank: int) -> AbstractContextManager[Pipe]:
    return worker_process(launcher, DEADLINES, rank)


def test_a_recorded_run_replays_over_processes(tmp_path: Path) -> None:
    record_run(from_flags({"ranks": "2"}), RunFiles(tmp_path))
    launcher = NotedLauncher(SERVE)
    recording = read_recording(tmp_path)
    result = replay_worker(recording, None, lambda rank: opened(launcher, rank))
    assert (result.frames, result.difference) == (12, None)
    assert [process.rank for process in launcher.started] == [0, 1]
    assert all(gone(process) for process in launcher.started)


def test_a_worker_that_ends_before_it_connects(tmp_path: Path) -> None:
    launcher = NotedLauncher("import sys; sys.exit('no luck')")
    with pytest.raises(ProtocolError) as failure, opened(launcher, 3):
        pass
    assert (failure.value.code, failure.value.rank) == ("protocol.closed", 3)
    assert "no luck" in failure.value.message
    assert all(gone(process) for process in launcher.started)


def test_nothing_is_left_when_the_replay_itself_fails() -> None:
    launcher = NotedLauncher(SERVE)
    with pytest.raises(ZeroDivisionError), opened(launcher, 1):
        raise ZeroDivisionError
    assert len(launcher.started) == 1
    assert all(gone(process) for process in launcher.started)
