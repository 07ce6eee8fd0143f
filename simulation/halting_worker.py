"""A worker that sends itself a signal at one place of the session; only tests may start it.

    halting_worker --connect ADDRESS --rank R --halt-rank R --halt-place PLACE --halt-signal NAME

STOP and KILL are what an operator, a debugger or the kernel do to a real worker. The ranks that
are not the halting one are ordinary workers.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

from simulation.faults import split_frames, take_apart
from wire.canonical import decode_canonical
from wire.frame import Buffer, Kind
from wire.link import Pipe
from worker.main import WorkerOptions
from worker.main import main as worker_main

# Before HELLO; after HELLO, before anything is read; before the frame that answers a phase; after
# RESULT, when nothing but the end of the session is due.
PLACES: Final = ("hello", "load", "attention", "mlp", "result", "close")
SIGNALS: Final = ("STOP", "KILL")


class HaltingPipe(Pipe):
    """A pipe that halts the process once, at its place."""

    def __init__(self, pipe: Pipe, place: str, number: int) -> None:
        self._pipe = pipe
        self._place = place
        self._number = number
        self._halted = False

    def send(self, buffers: list[Buffer], deadline: float) -> None:
        places = [place_of(raw) for raw in split_frames(b"".join(buffers))]
        for place in places:
            self._reached(place)
        self._pipe.send(buffers, deadline)
        if "result" in places:
            self._reached("close")

    def receive(self, limit: int, deadline: float) -> bytes:
        self._reached("load")
        return self._pipe.receive(limit, deadline)

    def receive_into(self, space: memoryview, deadline: float) -> int:
        return self._pipe.receive_into(space, deadline)

    def clock(self) -> float:
        return self._pipe.clock()

    def fileno(self) -> int:
        return self._pipe.fileno()

    def close(self) -> None:
        self._pipe.close()

    def _reached(self, place: str) -> None:
        if place == self._place and not self._halted:
            self._halted = True
            os.kill(os.getpid(), self._number)


def place_of(raw: bytes) -> str:
    """The phase that a frame of a worker answers."""
    parts = take_apart(raw)
    if parts.kind is Kind.HELLO:
        return "hello"
    return str(decode_canonical(parts.metadata)["phase"])


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="halting_worker", allow_abbrev=False)
    parser.add_argument("--halt-rank", required=True, type=int)
    parser.add_argument("--halt-place", required=True, choices=PLACES)
    parser.add_argument("--halt-signal", required=True, choices=SIGNALS)
    own, rest = parser.parse_known_args(argv)
    number = signal.Signals[f"SIG{own.halt_signal}"]

    def wrap(pipe: Pipe, options: WorkerOptions) -> Pipe:
        halts = options.rank == own.halt_rank
        return HaltingPipe(pipe, own.halt_place, number) if halts else pipe

    return worker_main(rest, wrap)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
