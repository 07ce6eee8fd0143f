"""From the first signal handler to the exit code: the main thread of a server.

It runs the event loop, takes signals, tells the log what happened, and sees to it that whatever
ends first, everything ends: the ranks first, then what clients are still to read, then the sockets.
docs/spec/http.md H30 to H33.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from dataclasses import dataclass
from types import FrameType
from typing import Final, TextIO

from coordinator.command_serve import say, signals_taken, when
from coordinator.deadlines import default_ms
from coordinator.serving.accept_failures import AcceptFailures
from coordinator.serving.backend import Backend
from coordinator.serving.control_thread import ControlThread
from coordinator.serving.http_server import HttpServer
from coordinator.serving.restarts import RESTARTS_MAX, WINDOW_S
from coordinator.serving.served import Phase

# How often a process that should be gone is looked at.
_KILL_EVERY_S: Final = 0.1


class News:
    """Tells the loop that something changed. set may be called by any thread and signal handler."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._event = asyncio.Event()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Called in the loop; what was set before is not lost."""
        self._loop = loop
        self._event.set()

    def set(self) -> None:
        loop = self._loop
        # A loop that has ended needs no news.
        with contextlib.suppress(RuntimeError):
            if loop is not None:
                loop.call_soon_threadsafe(self._event.set)

    async def wait(self, seconds: float | None) -> None:
        """Until something changed, or so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._event.wait()
        self._event.clear()


@dataclass(frozen=True)
class Texts:
    """What the log is told. listening, ready: whole lines."""

    listening: str
    ready: str


class Lifecycle:
    """The parties of one server."""

    def __init__(
        self,
        backend: Backend,
        server: HttpServer,
        control: ControlThread | None,
        news: News,
        *,
        drain_ms: int,
        texts: Texts,
        log: TextIO,
    ) -> None:
        self._backend = backend
        self._server = server
        self._control = control
        self._news = news
        self._drain_s = drain_ms / 1000
        self._texts = texts
        self._log = log
        self._signals = 0
        self._obeyed = 0
        self._kill_at: float | None = None
        self._told_restarts = 0
        self._told_epoch: int | None = None

    def run(self, listener: socket.socket) -> int:
        """Serve until the end; the exit code: 0, or that of the failure that ended it.

        Raises what made the start impossible, or a mistake of ours.
        """
        with signals_taken(self._on_signal):
            asyncio.run(self._main(listener))
        for crash in (self._backend.crash, None if self._control is None else self._control.crash):
            if crash is not None:
                raise crash
        failure = self._backend.status().failure
        return 0 if failure is None else failure.cause.exit_code

    async def _main(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(AcceptFailures(self._say, time.monotonic).handle)
        self._news.attach(loop)
        serving = asyncio.create_task(self._server.serve_on(listener))
        serving.add_done_callback(lambda _: self._news.set())
        self._say(self._texts.listening)
        self._backend.start()
        try:
            while not self._backend.ended and not serving.done():
                await self._news.wait(self._patience_s())
                self._look()
        finally:
            # However this is left, the ranks are gone first.
            self._backend.stop(self._backend.clock())
            while not self._backend.ended:
                self._backend.kill()
                await asyncio.sleep(_KILL_EVERY_S)
            self._backend.join()
            self._look()
            if self._control is not None:
                self._control.close()
            self._server.end()
            await serving

    def _patience_s(self) -> float | None:
        if self._kill_at is None:
            return None
        return max(_KILL_EVERY_S, self._kill_at - time.monotonic())

    def _look(self) -> None:
        """Everything that is due now."""
        self._obey_signals()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._backend.kill()
        if self._control is not None and self._control.crash is not None:
            self._stop(0.0)
        self._tell()

    def _obey_signals(self) -> None:
        """The first starts the drain, the second ends it."""
        while self._obeyed < self._signals:
            self._obeyed += 1
            if self._obeyed == 1:
                self._say(f"stopping: requests have {self._drain_s:g} s to finish\n")
                self._stop(self._drain_s)
            else:
                self._stop(0.0)

    def _stop(self, drain_s: float) -> None:
        now = time.monotonic()
        runs = self._backend.stop(now + drain_s)
        # Ranks that are not loaded yet have nothing to finish.
        self._kill_at = now + drain_s + default_ms("release") / 1000 if runs else now
        if self._control is not None:
            self._control.refuse_newcomers()

    def _tell(self) -> None:
        while self._backend.failures:
            failure = self._backend.failures.popleft()
            self._say(f"failed {when(failure)}: {failure.cause.diagnostics()}\n")
        status = self._backend.status()
        if status.restarts != self._told_restarts:
            self._told_restarts = status.restarts
            limit = f"at most {RESTARTS_MAX} in {WINDOW_S:g} s"
            self._say(f"starting the ranks again: restart {status.restarts}, {limit}\n")
        if status.phase is Phase.SERVING and status.epoch != self._told_epoch:
            self._told_epoch = status.epoch
            self._say(self._texts.ready)
            if self._control is not None:
                self._control.start()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._news.set()

    def _say(self, text: str) -> None:
        say(self._log, text)
