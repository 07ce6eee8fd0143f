"""A worker whose rank 1 allocates twice the slots that were agreed; only tests may start it."""

from __future__ import annotations

import sys
from typing import Any

from model.state import RankState
from program.spec import ProgramSpec
from worker.main import main, worker_options


def allocate_twice() -> None:
    made = RankState.__init__

    def init(state: RankState, program: ProgramSpec, slots: int, *rest: Any, **more: Any) -> None:
        made(state, program, 2 * slots, *rest, **more)

    for name, method in {"__init__": init}.items():
        setattr(RankState, name, method)


if __name__ == "__main__":
    if worker_options(sys.argv[1:]).rank == 1:
        allocate_twice()
    sys.exit(main(sys.argv[1:]))
