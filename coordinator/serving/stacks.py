"""Where every thread is right now: on SIGUSR1 to a stream, and for the flight recorder."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final, TextIO

FRAMES_MAX: Final = 64
_NUMBERS_READ: Final = 4096


def dump_stacks_on_signal(stream: TextIO) -> Callable[[], None]:
    """From here on SIGUSR1 writes the stacks of all threads to `stream`; returns what undoes it.

    Both are called by the main thread. A handler that looked at other threads while they run (as
    faulthandler's does) ends the process now and then. So the interpreter's own handler, in C,
    only leaves the number in a pipe, and a thread reads it there: whatever the others, the main
    one included, are stuck in, and whether or not the stream takes what is written. Signals that
    come meanwhile have one more dump together. A stream without a descriptor gets nothing.
    """
    try:
        descriptor = os.dup(stream.fileno())
    except OSError:
        return lambda: None
    reading, writing = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writing, False)
    # Not waited for at the end: it may be writing to a pipe that nobody reads.
    writer = threading.Thread(
        target=_write_stacks, args=(reading, descriptor), name="stacks", daemon=True
    )
    writer.start()
    handler = signal.signal(signal.SIGUSR1, _noted)
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)

    def undo() -> None:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGUSR1, handler)
        os.close(writing)

    return undo


def thread_stacks() -> list[dict[str, object]]:
    """Name and stack of every thread, innermost call last; no values of variables."""
    return [{"thread": name, "stack": stack} for name, stack in _stacks()]


def _noted(number: int, frame: FrameType | None) -> None:
    """The number is in the pipe already."""


def _write_stacks(reading: int, descriptor: int) -> None:
    """Until the other end of the pipe is closed."""
    try:
        while numbers := os.read(reading, _NUMBERS_READ):
            if signal.SIGUSR1 in numbers:
                _write(descriptor, _stacks_text())
    finally:
        os.close(reading)
        os.close(descriptor)


def _stacks_text() -> str:
    lines = []
    for name, stack in _stacks():
        lines.append(f"Thread {name} (most recent call first):\n")
        lines += [f"  {call}\n" for call in reversed(stack)]
    return "".join(lines) + "\n"


def _write(descriptor: int, text: str) -> None:
    """What can't be written is lost."""
    data = text.encode("utf-8", "backslashreplace")
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:
        return


def _stacks() -> list[tuple[str, list[str]]]:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [
        (
            names.get(ident, f"thread {ident}"),
            [
                f"{call.filename.rpartition('/')[2]}:{call.lineno} {call.name}"
                for call in _calls(frame)
            ],
        )
        for ident, frame in sys._current_frames().items()
    ]


def _calls(frame: FrameType) -> list[traceback.FrameSummary]:
    """Outermost first; of a deep stack the innermost ones. Reads no source files."""
    walked = traceback.walk_stack(frame)
    calls = traceback.StackSummary.extract(walked, limit=FRAMES_MAX, lookup_lines=False)
    return list(reversed(calls))
