"""The coordinator's command line with the worker of this source tree; for tests of `serve`.

    serve_process MODULE -- ARGUMENTS OF THE COORDINATOR

MODULE is the worker to start. All else is what the built program does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from coordinator import main as coordinator_main
from coordinator.worker_program import WorkerProgram


def main(argv: Sequence[str]) -> int:
    module, separator, *arguments = argv
    if separator != "--":
        raise ValueError("usage: serve_process MODULE -- ARGUMENTS")
    program = WorkerProgram((sys.executable, "-m", module), dict(os.environ))
    for name, value in {"worker_program": lambda: program, "faulty_worker_exists": bool}.items():
        setattr(coordinator_main, name, value)
    return coordinator_main.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
