"""A worker process with one fault in it; only tests and the evidence may start it.

    faulty_worker --connect ADDRESS --rank R --ranks N --fault KIND --fault-rank R --fault-phase P

The rank that is not the faulty one is an ordinary worker.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Protocol

from simulation.faults import Fault, FaultInjector, FaultKind, RankEnded
from wire.frame import Buffer
from wire.link import Pipe
from worker.main import WorkerOptions
from worker.main import main as worker_main

RANK_ENDED_STATUS = 4
_HOLD_S = 600.0


class Injector(Protocol):
    """Sends frames on, or something in their place."""

    def send(self, buffers: list[Buffer]) -> None: ...


class PipeTarget:
    """Applies a fault to a real connection."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe

    def write(self, data: bytes) -> None:
        self._pipe.send([data], self._pipe.clock() + _HOLD_S)

    def wait_for_hangup(self) -> None:
        deadline = self._pipe.clock() + _HOLD_S
        while self._pipe.receive(4096, deadline):
            pass


class FaultyPipe(Pipe):
    """A pipe whose outgoing frames pass an injector; everything else is the real pipe's."""

    def __init__(self, pipe: Pipe, injector: Injector) -> None:
        self._pipe = pipe
        self._injector = injector

    def send(self, buffers: list[Buffer], deadline: float) -> None:
        self._injector.send(buffers)

    def receive(self, limit: int, deadline: float) -> bytes:
        return self._pipe.receive(limit, deadline)

    def receive_into(self, space: memoryview, deadline: float) -> int:
        return self._pipe.receive_into(space, deadline)

    def clock(self) -> float:
        return self._pipe.clock()

    def fileno(self) -> int:
        return self._pipe.fileno()

    def close(self) -> None:
        self._pipe.close()


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="faulty_worker", allow_abbrev=False)
    parser.add_argument("--fault", required=True, choices=[kind.value for kind in FaultKind])
    parser.add_argument("--fault-rank", required=True, type=int)
    parser.add_argument("--fault-phase", required=True)
    parser.add_argument("--ranks", required=True, type=int)
    own, rest = parser.parse_known_args(argv)
    fault = Fault(FaultKind(own.fault), own.fault_phase, own.ranks)

    def wrap(pipe: Pipe, options: WorkerOptions) -> Pipe:
        if options.rank != own.fault_rank:
            return pipe
        return FaultyPipe(pipe, FaultInjector(fault, PipeTarget(pipe)))

    try:
        return worker_main(rest, wrap)
    except RankEnded:
        return RANK_ENDED_STATUS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
