"""A worker that takes its time for every step, as that of a large model does.

For gates that do something to a request while it runs: it is still running then, however fast the
model is and however slow the test. The command line is that of the worker.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Final

import worker.main
from wire.frame import Frame, Kind
from worker.core import Outgoing, WorkerCore

STEP_S: Final = 0.02


class SlowCore(WorkerCore):
    """Waits before each step."""

    def handle(self, frame: Frame) -> list[Outgoing]:
        if frame.kind is Kind.COMMAND:
            time.sleep(STEP_S)
        return super().handle(frame)


def main(argv: Sequence[str]) -> int:
    setattr(worker.main, WorkerCore.__name__, SlowCore)
    return worker.main.main(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
