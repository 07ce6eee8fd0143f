"""Signals to running programs: nothing and nobody is left, whoever is hit, and when."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.built_program import coordinator, finish, left_behind, started, worker
from coordinator.process_table import SLACK_S, children, is_running, process_state, wait_until
from coordinator.run_files import OUTPUT
from tools.python.tiers import mostly_exhaustive

# A worker may outlive its coordinator by 5 s; the rest is for a machine that is busy elsewhere.
# Far below 10 s, after which a worker that finds no coordinator gives up by itself.
OUTLIVES_S = 5.0 + 3.0
# Two ranks, both in the phase mlp: one is silent there, the other waits for it.
FAULT = ("--fault", "cancellation_race", "--fault-rank", "1", "--fault-phase", "mlp")
HELD = ("run", "--ranks", "2", "--batch", "1", "--sequence", "2", "--phase-ms", "60000", *FAULT)
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a program is called; not as deep as a test's own folder, because of sockets' paths."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def is_connected(folder: Path, process: subprocess.Popen[str], ranks: int) -> bool:
    """The workers run and the door behind the last of them is closed."""
    return len(children(process.pid)) == ranks and left_behind(folder) == []


def wait_for_workers(folder: Path, process: subprocess.Popen[str], ranks: int) -> set[int]:
    """Process ids of workers that are all in the session."""
    assert wait_until(lambda: len(children(process.pid)) == ranks)
    assert wait_until(lambda: is_connected(folder, process, ranks))
    return children(process.pid)


def demand_all_end(pids: set[int], since: float) -> None:
    """Orphans are reaped by whoever inherits them, which is not ours to prove."""
    assert wait_until(lambda: not any(is_running(pid) for pid in pids))
    assert time.monotonic() - since < OUTLIVES_S


@pytest.mark.parametrize(
    "number", mostly_exhaustive(EXIT_CODES, lambda number: number is signal.SIGTERM)
)
def test_the_coordinator_is_asked_to_end(number: signal.Signals, folder: Path) -> None:
    with started(coordinator(*HELD), folder) as process:
        pids = wait_for_workers(folder, process, 2)
        process.send_signal(number)
        finished = finish(process)
        # Its own children are reaped before it ends: not even zombies are inherited.
        assert [process_state(pid) for pid in pids] == [None, None]
    assert (finished.code, finished.out) == (EXIT_CODES[number], "")
    assert finished.err.startswith("coordinator: run.interrupted: ")
    assert finished.err.count("\n") == 1
    assert left_behind(folder) == []
    assert not (folder / "out" / OUTPUT).exists()


def test_a_terminal_interrupts_the_whole_group_again_and_again(folder: Path) -> None:
    """Ctrl-C reaches the workers as well, and an impatient user presses it twice."""
    with started(coordinator(*HELD), folder) as process:
        pids = wait_for_workers(folder, process, 2)
        for _ in range(3):
            os.killpg(process.pid, signal.SIGINT)
        finished = finish(process)
        assert [process_state(pid) for pid in pids] == [None, None]
    assert (finished.code, finished.out) == (130, "")
    assert left_behind(folder) == []


@pytest.mark.exhaustive
def test_interrupted_while_workers_start(folder: Path) -> None:
    with started(coordinator(*HELD), folder) as process:
        assert wait_until(lambda: bool(children(process.pid)))
        pids = children(process.pid)
        process.send_signal(signal.SIGINT)
        finished = finish(process)
        assert all(process_state(pid) is None for pid in pids)
    assert finished.code == 130
    assert left_behind(folder) == []


def test_interrupted_while_waiting_for_external_workers(folder: Path) -> None:
    flags = ("--ranks", "2", "--listen", "unix:tmp/s", "--external-workers", "--json")
    with started(coordinator("run", *flags), folder) as process:
        assert wait_until(lambda: (folder / "tmp" / "s").exists())
        process.send_signal(signal.SIGTERM)
        finished = finish(process)
    assert finished.code == 143
    assert '"run.interrupted"' in finished.out
    assert left_behind(folder) == []


def test_a_killed_coordinator_leaves_no_waiting_worker(folder: Path) -> None:
    with started(coordinator(*HELD), folder) as process:
        pids = wait_for_workers(folder, process, 2)
        process.kill()
        demand_all_end(pids, time.monotonic())
    assert left_behind(folder) == []


@pytest.mark.exhaustive
def test_a_killed_coordinator_leaves_no_starting_worker(folder: Path) -> None:
    """Not yet connected, so no connection ends; its socket file is still there."""
    with started(coordinator(*HELD), folder) as process:
        assert wait_until(lambda: len(children(process.pid)) == 2)
        pids = children(process.pid)
        process.kill()
        demand_all_end(pids, time.monotonic())


def test_a_stopped_worker_ends_when_it_continues_alone(folder: Path) -> None:
    with started(coordinator(*HELD), folder) as process:
        pids = wait_for_workers(folder, process, 2)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        process.kill()
        assert process.wait(SLACK_S) == -signal.SIGKILL
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        demand_all_end(pids, time.monotonic())


def test_a_worker_alone_is_interrupted(folder: Path) -> None:
    with started(worker("unix:nobody", 0), folder) as process:
        assert wait_until(lambda: processor_ticks(process.pid) > 0)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        finished = finish(process)
    assert finished.code in (130, -signal.SIGINT)


def processor_ticks(pid: int) -> int:
    """Processor time of a process so far."""
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    user, system = text.rpartition(")")[2].split()[11:13]
    return int(user) + int(system)
