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
from simulation.faulty_worker import RANK_ENDED_STATUS, FaultyPipe, PipeTarget
from simulation.serving_faults import AnyFault, ServingFault, ServingInjector, Strike
from wire.link import Pipe
from worker.main import WorkerOptions
from worker.main import main as worker_main

KINDS: dict[str, AnyFault] = {kind.value: kind for kind in (*FaultKind, *ServingFault)}


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
        if options.rank != own.fault_rank:
            return pipe
        return FaultyPipe(pipe, ServingInjector(strike, PipeTarget(pipe)))

    try:
        return worker_main(rest, wrap)
    except RankEnded:
        return RANK_ENDED_STATUS


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
