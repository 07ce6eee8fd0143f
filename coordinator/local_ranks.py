"""Ranks as real processes behind a listening socket: started here, or joining from outside.

Owns everything of a run that must be gone afterwards: the socket, its directory, the processes.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType

from coordinator.accept import Accepted, Acceptor
from coordinator.processes import Launcher, WorkerExit, Workers
from errors import MisuseError, TPError
from manifest.run_manifest import RunManifest
from wire.address import parse_address
from wire.recorder import Recorder
from wire.socket_pipe import Listener


class LocalRanks:
    """Context manager over one run's listener and worker processes.

    launcher: None when the workers are external and only connect. On leaving, every process that
    was started is gone and reaped, and the socket and its directory are removed.
    """

    def __init__(self, manifest: RunManifest, launcher: Launcher | None) -> None:
        self._manifest = manifest
        self._workers = Workers(launcher) if launcher is not None else None
        self._directory: Path | None = None
        self._listener: Listener | None = None
        self.address = ""
        self.accepted: Accepted | None = None
        self.exits: list[WorkerExit] = []

    def __enter__(self) -> LocalRanks:
        try:
            self._listener = Listener(parse_address(self._choose_address(), field="listen"))
        except BaseException:
            self._remove_directory()
            raise
        self.address = str(self._listener.address)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # After a failure nobody is asked to leave: the grace is for clean ends only.
        try:
            self.stop(self._manifest.deadlines.close_ms if kind is None else 0)
        finally:
            if self._listener is not None:
                self._listener.close()
            self._remove_directory()

    @property
    def pids(self) -> dict[int, int]:
        """Process ids of the started workers, by rank."""
        return self._workers.pids if self._workers is not None else {}

    def connect(self, recorder: Recorder) -> Accepted:
        """Start the workers (unless external) and accept one link per rank. Raises PeerError."""
        if self._listener is None:
            raise MisuseError("connect outside of the with block")
        deadline = time.monotonic() + self._manifest.deadlines.handshake_ms / 1000
        if self._workers is not None:
            self._workers.start(self._manifest.ranks, self.address)
        ended = self._workers.first_ended if self._workers is not None else lambda: None
        acceptor = Acceptor(self._listener, self._manifest.ranks, recorder, ended)
        self.accepted = acceptor.accept(deadline)
        return self.accepted

    def stop(self, grace_ms: int) -> list[WorkerExit]:
        """Close nothing, wait for the processes to leave, kill what is left; idempotent."""
        if self._workers is not None:
            self.exits = list(self._workers.stop(grace_ms))
        return self.exits

    def _choose_address(self) -> str:
        if self._manifest.listen:
            return self._manifest.listen
        if self._manifest.transport == "tcp":
            return "tcp:127.0.0.1:0"
        try:
            self._directory = Path(tempfile.mkdtemp(prefix="rankproof-"))
        except OSError as failure:
            raise TPError("output.write", f"no temporary directory: {failure}") from None
        return f"unix:{self._directory}/coordinator.sock"

    def _remove_directory(self) -> None:
        if self._directory is not None:
            with contextlib.suppress(OSError):
                shutil.rmtree(self._directory)
