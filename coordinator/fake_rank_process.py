"""A FakeRank as a program of its own, started like a worker: `--connect ADDRESS --rank R`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Final

from coordinator.fake_rank import FakePipe
from coordinator.processes import ExecLauncher
from wire.address import parse_address
from wire.limits import READ_BYTES
from wire.socket_pipe import connect

_WAIT_S: Final = 60.0


def fake_rank_launcher() -> ExecLauncher:
    """Child processes import from where this one does, and from nowhere else."""
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
    return ExecLauncher((sys.executable, "-m", __name__), environment)


def main(argv: Sequence[str]) -> int:
    """Returns 0 when the coordinator has closed the connection."""
    parser = argparse.ArgumentParser(prog="fake_rank", allow_abbrev=False)
    parser.add_argument("--connect", required=True)
    parser.add_argument("--rank", required=True, type=int)
    options = parser.parse_args(argv)
    pipe = connect(parse_address(options.connect), time.monotonic() + _WAIT_S)
    fake = FakePipe(options.rank)
    while True:
        answer = fake.receive(READ_BYTES, 0)
        if answer:
            pipe.send([answer], pipe.clock() + _WAIT_S)
            continue
        data = pipe.receive(READ_BYTES, pipe.clock() + _WAIT_S)
        if not data:
            return 0
        fake.send([data], 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
