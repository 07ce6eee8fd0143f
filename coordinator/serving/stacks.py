"""Where every thread is right now: on SIGUSR1 to a stream, and for the flight recorder."""

from __future__ import annotations

import faulthandler
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Final, TextIO

FRAMES_MAX: Final = 64


def dump_stacks_on_signal(stream: TextIO) -> Callable[[], None]:
    """From here on SIGUSR1 writes the stacks of all threads to `stream`; returns what undoes it.

    The handler is written in C, so it also works while Python code is stuck. The stream's
    descriptor must stay open until then; a stream without one gets nothing.
    """
    try:
        stream.fileno()
    except OSError:
        return lambda: None
    faulthandler.register(signal.SIGUSR1, file=stream, all_threads=True, chain=False)

    def undo() -> None:
        faulthandler.unregister(signal.SIGUSR1)

    return undo


def thread_stacks() -> list[dict[str, object]]:
    """Name and stack of every thread, innermost call last; no values of variables."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return [
        {
            "thread": names.get(ident, f"thread {ident}"),
            "stack": [
                f"{call.filename.rpartition('/')[2]}:{call.lineno} {call.name}"
                for call in _calls(frame)
            ],
        }
        for ident, frame in sys._current_frames().items()
    ]


def _calls(frame: FrameType) -> list[traceback.FrameSummary]:
    """Outermost first; of a deep stack the innermost ones. Reads no source files."""
    walked = traceback.walk_stack(frame)
    calls = traceback.StackSummary.extract(walked, limit=FRAMES_MAX, lookup_lines=False)
    return list(reversed(calls))
