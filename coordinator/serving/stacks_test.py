"""Where threads are: on a signal, and as values."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from coordinator.process_table import wait_until
from coordinator.serving.stacks import FRAMES_MAX, dump_stacks_on_signal, thread_stacks


def waits_here(going: threading.Event) -> None:
    going.wait()


def test_sigusr1_writes_the_stacks_of_all_threads(tmp_path: Path) -> None:
    going = threading.Event()
    thread = threading.Thread(target=waits_here, args=(going,))
    thread.start()
    path = tmp_path / "log"
    with path.open("w") as log:
        undo = dump_stacks_on_signal(log)
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            wait_until(lambda: "Thread MainThread" in path.read_text())
        finally:
            undo()
            going.set()
            thread.join()
    text = path.read_text()
    assert "waits_here" in text
    assert "test_sigusr1_writes" in text


def climbs(depth: int) -> int:
    return 0 if depth == 0 else 1 + climbs(depth - 1)


@pytest.mark.exhaustive
def test_a_storm_of_signals_while_threads_run_ends_nothing(tmp_path: Path) -> None:
    resting = threading.Event()

    def busy() -> None:
        while not resting.is_set():
            for depth in (10, 300, 700):
                climbs(depth)

    def storm() -> None:
        for _ in range(300):
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.0007)

    threads = [threading.Thread(target=busy) for _ in range(2)]
    with (tmp_path / "log").open("w") as log:
        undo = dump_stacks_on_signal(log)
        try:
            for thread in threads:
                thread.start()
            # The main thread waits, as the server's does: it has the signal while others run.
            sender = threading.Thread(target=storm)
            sender.start()
            sender.join()
        finally:
            resting.set()
            undo()
            for thread in threads:
                thread.join()
    assert "climbs" in (tmp_path / "log").read_text()


def test_a_stream_that_nobody_reads_holds_nobody_up() -> None:
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writing, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writing, b"x" * 4096)
    os.set_blocking(writing, True)
    before = signal.getsignal(signal.SIGUSR1)
    with os.fdopen(writing, "w") as log:
        undo = dump_stacks_on_signal(log)
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGUSR1)
        undo()
    # The writer gives up with the reader.
    os.close(reading)
    assert wait_until(lambda: all(one.name != "stacks" for one in threading.enumerate()))
    assert signal.getsignal(signal.SIGUSR1) == before


def test_a_stream_without_a_descriptor_gets_nothing() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    dump_stacks_on_signal(io.StringIO())()
    assert signal.getsignal(signal.SIGUSR1) == before


def deep(depth: int) -> list[dict[str, object]]:
    return thread_stacks() if depth == 0 else deep(depth - 1)


def test_stacks_name_threads_and_calls_and_are_bounded() -> None:
    mine = next(one for one in deep(2 * FRAMES_MAX) if one["thread"] == "MainThread")
    stack = mine["stack"]
    assert isinstance(stack, list)
    assert len(stack) == FRAMES_MAX
    assert all(call.endswith(" deep") for call in stack[:10])
    assert "thread_stacks" in stack[-1] or "stacks.py" in stack[-1]
