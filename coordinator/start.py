"""The coordinator's first lines: what must hold before the rest of the program is imported.

Importing takes a moment, and a signal in that moment ends the program as it would later. And NumPy
reads the environment while it is imported: the coordinator only adds, which no pool of threads
helps, and where threads are rationed none can be started.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _leave(number: int, frame: FrameType | None) -> None:
    """Nothing has been started yet, and nothing is left to put away."""
    sentence = f"coordinator: run.interrupted: stopped by {signal.Signals(number).name}\n"
    try:
        os.write(2, sentence.encode("ascii"))
    finally:
        os._exit(128 + number)


def _pass_over(number: int, frame: FrameType | None) -> None:
    """Asks for stacks, which nobody tells yet."""


def start() -> int:
    """Import the program and run it on this process's command line; returns the exit code."""
    for number in _SIGNALS:
        # One that the caller ignores (nohup) stays ignored.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _leave)
    # By default it would end the process. Not ignored: started programs would inherit that. A
    # service tells stacks whatever the caller did with it, so it is not left as it was either.
    signal.signal(signal.SIGUSR1, _pass_over)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    # One text at a time is tokenized, which no pool of threads helps either.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from coordinator.main import main, open_standard_streams

    open_standard_streams()
    return main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(start())
