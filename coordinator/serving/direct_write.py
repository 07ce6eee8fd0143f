"""An extension of ASGI: part of an answer's body is written at once, or not at all.

A message of ASGI takes a task's turn and the way through every layer of the application, which
costs more than making the event of a token that it carries.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

# Writes part of the body of the request's answer, which has begun and has no length. False when it
# was not written: it is empty, or it would have to wait, or nobody reads, or the answer is over.
DirectWrite = Callable[[bytes], bool]

_DIRECT: Final = "rankproof.direct_write"


def offering(app: ASGIApp, write: Callable[[Scope, bytes], bool]) -> ASGIApp:
    """The application, told of the server's `write` for the request of a scope."""

    async def extended(scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("extensions", {})[_DIRECT] = partial(write, scope)
        await app(scope, receive, send)

    return extended


def direct_write(scope: Scope) -> DirectWrite:
    """The server's, or one that never writes."""
    found: DirectWrite = scope.get("extensions", {}).get(_DIRECT, never)
    return found


def never(data: bytes) -> bool:
    """A server that offers nothing."""
    return False
