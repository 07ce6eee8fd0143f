"""A worker process with one fault while it serves; only tests may start it.

    serving_worker --connect ADDRESS --rank R --ranks N
                   --fault KIND --fault-rank R --fault-phase P --fault-epoch E

The ranks that are not the faulty one are ordinary workers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from simulation.faults import FaultKind, RankEnded
from simulation.faulty_worker import RANK_ENDED_STATUS, PipeTarget
from simulation.serving_faults import AnyFault, ServingFault, ServingInjector, Strike
from wire.frame import Buffer
from wire.link import Pipe
from worker.main import WorkerOptions
from worker.main import main as worker_main

KINDS: dict[str, AnyFault] = {kind.value: kind for kind in (*FaultKind, *ServingFault)}


class _InjectingPipe(Pipe):
    """A pipe whose outgoing frames pass an injector; everything else is the real pipe's."""

    def __init__(self, pipe: Pipe, strike: Strike) -> None:
        self._pipe = pipe
        self._injector = ServingInjector(strike, PipeTarget(pipe))

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
    parser = argparse.ArgumentParser(prog="serving_worker", allow_abbrev=False)
    parser.add_argument("--fault", required=True, choices=list(KINDS))
    parser.add_argument("--fault-rank", required=True, type=int)
    parser.add_argument("--fault-phase", required=True)
    parser.add_argument("--fault-epoch", required=True, type=int)
    parser.add_argument("--ranks", required=True, type=int)
    own, rest = parser.parse_known_args(argv)
    strike = Strike(KINDS[own.fault], own.fault_phase, own.fault_epoch, own.ranks)

    def wrap(pipe: Pipe, options: WorkerOptions) -> Pipe:
        return _InjectingPipe(pipe, strike) if options.rank == own.fault_rank else pipe

    try:
        return worker_main(rest, wrap)
    except RankEnded:
        return RANK_ENDED_STATUS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
