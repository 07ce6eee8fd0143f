"""Request bodies are whole and bounded before a route sees them.

A route gets one message with all of it. So a slow sender holds a connection and what it has sent so
far, and nothing else; the sum over all connections is bounded too. docs/spec/http.md H21.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from coordinator.serving.http_limits import HttpLimits
from coordinator.serving.refusal import Refusal

# What a client still sends of a body that was refused is read for so long, so that the refusal
# reaches it instead of a reset connection.
DISCARD_MS: Final = 1_000

_CROWDED: Final = Refusal(
    503, "overload.bodies", "the requests being received are too large together"
)


class BodyLimit:
    """ASGI middleware. held_bytes: of all bodies now."""

    def __init__(self, app: ASGIApp, limits: HttpLimits) -> None:
        self.held_bytes = 0
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        body = bytearray()
        try:
            refusal = self._announced(scope)
            more = refusal is None
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    return
                part = message.get("body", b"")
                body += part
                self.held_bytes += len(part)
                refusal = self._judge(len(body))
                more = refusal is None and message.get("more_body", False)
            if refusal is None:
                await self._app(scope, _replayed(bytes(body), receive), send)
        finally:
            self.held_bytes -= len(body)
        if refusal is not None:
            del body
            await _refuse(refusal, receive, send)

    def _announced(self, scope: Scope) -> Refusal | None:
        """What the head alone gives away. h11 has checked that the length is a number."""
        for name, value in scope["headers"]:
            if name == b"content-length":
                return self._judge(int(value))
        return None

    def _judge(self, size: int) -> Refusal | None:
        if size > self._limits.body_bytes:
            message = f"the body must have at most {self._limits.body_bytes} bytes"
            return Refusal(413, "request.body_size", message)
        return _CROWDED if self.held_bytes > self._limits.bodies_bytes else None


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The whole body once, then what the connection says: that the client has left."""
    parts: list[bytes] = [body]

    async def replay() -> Message:
        if parts:
            return {"type": "http.request", "body": parts.pop(), "more_body": False}
        return await receive()

    return replay


async def _refuse(refusal: Refusal, receive: Receive, send: Send) -> None:
    await refusal.begin(send)
    try:
        async with asyncio.timeout(DISCARD_MS / 1000):
            while (message := await receive())["type"] == "http.request":
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        pass
    await refusal.end(send)
