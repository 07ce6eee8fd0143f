"""Where threads are: on a signal, and as values."""

from __future__ import annotations

import io
import os
import signal
import threading
from pathlib import Path

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
            wait_until(lambda: "Current thread" in path.read_text())
        finally:
            undo()
            going.set()
            thread.join()
    text = path.read_text()
    assert "waits_here" in text
    assert "test_sigusr1_writes" in text


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
