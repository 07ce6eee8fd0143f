"""Server-sent events to one client: what is not read is bounded, and so is every write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from starlette.types import Send

from coordinator.serving.api_options import ApiOptions
from coordinator.serving.direct_write import DirectWrite, never
from coordinator.serving.write_deadline import WriteDeadline

HEADERS: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # Asks proxies not to collect events.
    (b"x-accel-buffering", b"no"),
)


class EventStream:
    """Bytes are written by anyone on the event loop, and sent by `run`.

    left: called once, as soon as the client counts as gone. soon: calls what it is given when
    nothing more is written at once.
    """

    def __init__(
        self,
        options: ApiOptions,
        left: Callable[[], None],
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._left = left
        self._soon = soon
        self._send_s = options.send_ms / 1000
        self._unread_bytes_max = options.unread_bytes_max
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._news = asyncio.Event()
        self._direct: DirectWrite = never
        # `run` has data in its hands that come before all others.
        self._sending = True
        self._due = False
        self._ended = False
        self.gone = False

    def write(self, data: bytes) -> None:
        """Neither waits nor raises: a client that leaves too much unread is gone."""
        if self.gone:
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes > self._unread_bytes_max:
            self.close()
        if self._sending:
            self._news.set()
        elif not self._due:
            # What else is written meanwhile goes out with it.
            self._due = True
            self._soon(self._push)

    def end(self) -> None:
        """Nothing more will be written."""
        self._ended = True
        self._news.set()

    def close(self) -> None:
        """The client is gone; may be called again."""
        if self.gone:
            return
        self.gone = True
        self._left()
        self._pending.clear()
        self._pending_bytes = 0
        self._news.set()

    async def run(
        self, send: Send, headers: list[tuple[bytes, bytes]], direct: DirectWrite = never
    ) -> None:
        """Until the end was written, or the client is gone. direct: see direct_write.py."""
        self._direct = direct
        try:
            with WriteDeadline(self._send_s) as deadline:
                await self._sent(deadline.bounded(send), headers)
        except (TimeoutError, OSError):
            self.close()

    async def _sent(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]})
        while not self.gone:
            data = b"".join(self._pending)
            self._pending.clear()
            last = self._ended
            if data and not self.gone:
                await send({"type": "http.response.body", "body": data, "more_body": True})
                self._pending_bytes -= len(data)
            if last and not self.gone:
                await send({"type": "http.response.body", "body": b""})
                return
            if not self._pending and not self._ended:
                self._sending = False
                await self._news.wait()
                self._sending = True
            self._news.clear()

    def _push(self) -> None:
        """Writes what is there without `run`, or else wakes it."""
        self._due = False
        if self.gone or self._sending or not self._pending:
            return
        data = b"".join(self._pending)
        if not self._direct(data):
            self._sending = True
            self._news.set()
            return
        self._pending.clear()
        self._pending_bytes -= len(data)
