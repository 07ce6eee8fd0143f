"""An extension of ASGI: part of an answer's body is written at once, or not at all.

A message of ASGI takes a task's turn and the way through every layer of the application, which
costs more than making the event of a token that it carries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

# Writes part of the body of an answer that has begun and has no length; not empty. False when it
# was not written, because that would mean to wait, or because nobody reads.
DirectWrite = Callable[[bytes], bool]

_DIRECT: Final = "rankproof.direct_write"


def offering(app: ASGIApp, write: DirectWrite) -> ASGIApp:
    """The application, told of the server's."""

    async def extended(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[_DIRECT] = write
        await app(scope, receive, send)

    return extended


def direct_write(scope: Scope) -> DirectWrite:
    """The server's, or one that never writes."""
    found: DirectWrite = scope.get("extensions", {}).get(_DIRECT, never)
    return found


def never(data: bytes) -> bool:
    """A server that offers nothing."""
    return False
