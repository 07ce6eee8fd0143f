"""A fresh worker process behind a pipe, for a replay; gone when the context is left."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coordinator.processes import Launcher, WorkerProcess, Workers
from errors import DeadlineError, ProtocolError
from manifest.run_manifest import Deadlines
from wire.address import parse_address
from wire.link import Pipe
from wire.session import HELLO_PHASE
from wire.socket_pipe import Listener, SocketPipe

# How often to look whether the process ended before it could connect.
_LIVENESS_S = 0.05


@contextmanager
def worker_process(launcher: Launcher, deadlines: Deadlines, rank: int) -> Iterator[Pipe]:
    """A worker of `rank` that has connected. Raises PeerError when it does not connect."""
    workers = Workers(_OneRank(launcher, rank))
    with tempfile.TemporaryDirectory(prefix="rankproof-") as directory:
        listener = Listener(parse_address(f"unix:{directory}/replay.sock", field="TMPDIR"))
        try:
            workers.start(1, str(listener.address))
            pipe = _accept(listener, workers, rank, deadlines.handshake_ms / 1000)
            try:
                yield pipe
            finally:
                pipe.close()
            workers.stop(deadlines.close_ms)
        finally:
            # After a failure nobody is asked to leave; after a clean end nothing is left to stop.
            workers.stop(0)
            listener.close()


@dataclass(frozen=True)
class _OneRank:
    """A launcher whose only worker is of a rank other than 0."""

    launcher: Launcher
    rank: int

    def start(self, rank: int, address: str) -> WorkerProcess:
        return self.launcher.start(self.rank, address)


def _accept(listener: Listener, workers: Workers, rank: int, wait_s: float) -> SocketPipe:
    deadline = time.monotonic() + wait_s
    while True:
        try:
            return listener.accept(min(deadline, time.monotonic() + _LIVENESS_S))
        except DeadlineError as failure:
            for gone in workers.ended():
                message = f"its process ended with status {gone.status}: {gone.last_words}"
                raise ProtocolError("closed", message, rank=rank, phase=HELLO_PHASE) from None
            if time.monotonic() >= deadline:
                raise failure.located(rank, HELLO_PHASE) from None
