"""Ranks as real processes behind a listening socket: started here, or joining from outside.

Owns everything of a run that must be gone afterwards: the socket, its directory, the processes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from types import TracebackType

from coordinator.accept import Accepted, Acceptor
from coordinator.interruption import held
from coordinator.processes import Launcher, WorkerExit, Workers
from errors import ConfigError, MisuseError, TPError
from manifest.run_manifest import RunManifest
from wire.address import UNIX_PATH_BYTES_MAX, Address, parse_address
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
        self.strangers = 0
        self.exits: list[WorkerExit] = []

    def __enter__(self) -> LocalRanks:
        try:
            with held():
                self._listener = Listener(self._choose_address())
        except BaseException:
            self._clear()
            raise
        self.address = str(self._listener.address)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            # After a failure nobody is asked to leave: the grace is for clean ends only.
            if kind is None:
                self.stop(self._manifest.deadlines.close_ms)
            self._clear()
        except BaseException:
            # An interruption comes once, so this time it runs to its end.
            self._clear()
            raise

    @property
    def pids(self) -> dict[int, int]:
        """Process ids of the started workers, by rank."""
        return self._workers.pids if self._workers is not None else {}

    def connect(self, recorder: Recorder) -> Accepted:
        """Start the workers (unless external) and accept one link per rank. Raises PeerError.

        Nobody can connect any more afterwards, and the socket is gone from the file system.
        """
        if self._listener is None:
            raise MisuseError("connect outside of the with block")
        deadline = time.monotonic() + self._manifest.deadlines.handshake_ms / 1000
        if self._workers is not None:
            self._workers.start(self._manifest.ranks, self.address)
        ended = self._workers.ended if self._workers is not None else list
        acceptor = Acceptor(self._listener, self._manifest.ranks, recorder, ended)
        try:
            return acceptor.accept(deadline)
        finally:
            self.strangers = acceptor.strangers
            self._stop_listening()

    def kill(self) -> None:
        """SIGKILL to every process that still runs; returns at once. May be called by any thread.

        The thread that talks to the ranks sees their connections end.
        """
        if self._workers is not None:
            self._workers.kill()

    def stop(self, grace_ms: int) -> list[WorkerExit]:
        """Close nothing, wait for the processes to leave, kill what is left; idempotent."""
        if self._workers is not None:
            self.exits = list(self._workers.stop(grace_ms))
        return self.exits

    def _choose_address(self) -> Address:
        if self._manifest.listen:
            return parse_address(self._manifest.listen, field="listen")
        if self._manifest.transport == "tcp":
            return Address("127.0.0.1", 0)
        try:
            self._directory = Path(tempfile.mkdtemp(prefix="rankproof-"))
        except OSError as failure:
            raise TPError("output.write", f"no temporary directory: {failure}") from None
        address = Address(path=f"{self._directory}/coordinator.sock")
        if len(os.fsencode(str(address.path))) > UNIX_PATH_BYTES_MAX:
            rule = "is too long for the path of a Unix socket; a shorter one or tcp would do"
            raise ConfigError.single("TMPDIR", self._directory.parent, rule)
        return address

    def _clear(self) -> None:
        try:
            self.stop(0)
        finally:
            self._stop_listening()

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._directory is not None:
            with contextlib.suppress(OSError):
                shutil.rmtree(self._directory)
