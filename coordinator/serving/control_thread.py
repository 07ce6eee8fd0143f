"""The control socket beside HTTP: a thread of its own that pumps it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from coordinator.deadlines import default_ms
from coordinator.engine import EngineSnapshot
from coordinator.service import ControlService
from coordinator.serving.backend import Backend
from coordinator.wake import Wake
from errors import MisuseError
from wire.socket_pipe import Listener

_LOOK_S: Final = 3600.0


class ControlThread:
    """listener: bound; what connects before `start` is answered afterwards.

    crashed: called by the thread when a mistake of ours ends it; `crash` is that mistake.
    """

    def __init__(self, listener: Listener, backend: Backend, crashed: Callable[[], None]) -> None:
        self.crash: BaseException | None = None
        self._backend = backend
        self._crashed = crashed
        self._wake = Wake()
        self._service = ControlService(
            listener, backend, backend.limits, self._snapshot, self._wake
        )
        self._refusing = False
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)

    def start(self) -> None:
        """Once the first load has ended. May be called again."""
        if self._thread.ident is None:
            self._thread.start()

    def refuse_newcomers(self) -> None:
        """Nobody can connect any more."""
        self._refusing = True
        self._wake.set()

    def close(self) -> None:
        """After the engine has ended: clients read what they were told, then all is closed."""
        self._refusing = self._ending = True
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._service.close()
        self._wake.close()

    def _run(self) -> None:
        try:
            while not self._ending:
                self._service.pump(time.monotonic() + _LOOK_S)
                if self._refusing:
                    self._service.refuse_newcomers()
            self._service.flush(time.monotonic() + default_ms("flush") / 1000)
        except BaseException as crash:
            # It ends the service, and its thread must not hide it.
            self.crash = crash
            self._crashed()

    def _snapshot(self) -> EngineSnapshot:
        snapshot = self._backend.snapshot
        if snapshot is None:
            raise MisuseError("asked for the state before there was any")
        return snapshot
