"""uvicorn, held to our limits and our signals. It must not know models or routes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from ipaddress import ip_address
from typing import Final

from starlette.types import ASGIApp
from uvicorn.config import Config
from uvicorn.server import Server

from coordinator.serving.http_limits import HttpLimits
from coordinator.serving.http_protocol import guarded
from errors import ConfigError

# Clients that the kernel keeps until they are accepted.
_BACKLOG: Final = 512
# And how many are accepted before any of them is looked at: each takes a descriptor, however many
# connections there may be.
_ACCEPTED_AT_ONCE: Final = 16


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket; port 0 for any that is free. Raises ConfigError."""
    family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as failure:
        listener.close()
        rule = f"can't be listened at: {failure.strerror}"
        raise ConfigError.single("--port", f"{host}:{port}", rule) from None
    listener.setblocking(False)
    return listener


def url_of(listener: socket.socket) -> str:
    """With the real port."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class HttpServer(Server):
    """One server on one socket; signals are its owner's affair."""

    def __init__(self, app: ASGIApp, limits: HttpLimits, flush_ms: int) -> None:
        super().__init__(
            Config(
                app,
                http=guarded(limits),
                ws="none",
                loop="asyncio",
                lifespan="off",
                # Requests are counted and traced elsewhere; what is logged here are mistakes.
                log_config=None,
                log_level="error",
                access_log=False,
                # What a client says of itself in a header is not believed.
                proxy_headers=False,
                server_header=False,
                backlog=_ACCEPTED_AT_ONCE,
                h11_max_incomplete_event_size=limits.head_bytes,
                timeout_keep_alive=limits.keep_alive_ms // 1000,
                # Routes end when their connection does; this is for one that would not.
                timeout_graceful_shutdown=flush_ms // 1000 + 1,
            )
        )
        self._flush_s = flush_ms / 1000

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """uvicorn would take the signals that our drain needs."""
        yield

    def end(self) -> None:
        """Answers that are complete are written within the flush, then every connection ends."""
        self.should_exit = True

    async def serve_on(self, listener: socket.socket) -> None:
        """Until `end`. Closes the socket."""
        try:
            await self.serve([listener])
        finally:
            listener.close()
            self._abort_all()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """asyncio has one number for both, which is too small for the kernel."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See `end`."""
        timer = asyncio.get_running_loop().call_later(self._flush_s, self._abort_all)
        try:
            await super().shutdown(sockets)
        finally:
            timer.cancel()

    def _abort_all(self) -> None:
        for connection in list(self.server_state.connections):
            connection.transport.abort()
