"""The signals that end a run early: raised once, and never while something is half done.

A started process that nobody has noted yet, or a clean-up cut in two, would be left behind; such
places hold the interruption back until they are done. Signals belong to the process, so this is the
one module with a state of its own.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

# What a terminal, a supervisor and a closed terminal send.
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption(BaseException):
    """A signal asked for the end; like KeyboardInterrupt it unwinds all that must be put away."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """As a shell reports it: 130 for SIGINT, 143 for SIGTERM."""
        return 128 + self.number


class _Hold:
    depth = 0
    pending: Interruption | None = None


@contextmanager
def interruptible() -> Iterator[None]:
    """Turns the signals into Interruption. One that the caller ignores (nohup) stays ignored.

    After the first signal the others are ignored: what follows is the clean-up, which is bounded.
    """
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held() -> Iterator[None]:
    """An interruption that arrives in the block is raised at its end. May be nested."""
    _Hold.depth += 1
    try:
        yield
    finally:
        _Hold.depth -= 1
        pending = _Hold.pending
        if pending is not None and _Hold.depth == 0:
            _Hold.pending = None
            raise pending


def _interrupt(number: int, frame: FrameType | None) -> None:
    for other in SIGNALS:
        signal.signal(other, signal.SIG_IGN)
    interruption = Interruption(number)
    if _Hold.depth == 0:
        raise interruption
    _Hold.pending = interruption
