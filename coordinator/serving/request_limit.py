"""How many requests are answered at once; health is always answered.

Whoever watches over the service must not take a busy one for a broken one, so a few connections
more are open than there may be requests. docs/spec/http.md H22.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.serving.refusal import Refusal

FULL: Final = Refusal(503, "overload.connections", "too many connections")


class RequestLimit:
    """ASGI middleware. requests_max: at once, besides those for the paths in `always`."""

    def __init__(self, app: ASGIApp, requests_max: int, always: Collection[str]) -> None:
        self.requests = 0
        self._app = app
        self._max = requests_max
        self._always = always

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self._always:
            await self._app(scope, receive, send)
            return
        if self.requests >= self._max:
            await FULL.begin(send)
            await FULL.end(send)
            return
        self.requests += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self.requests -= 1
