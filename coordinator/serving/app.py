"""The application: routes, and around them who may ask, how much, and how errors look."""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from coordinator.serving.access import Access, AccessRules
from coordinator.serving.body_limit import BodyLimit
from coordinator.serving.http_limits import HttpLimits
from coordinator.serving.refusal import Refusal
from coordinator.serving.request_limit import RequestLimit

_CODES: Final = {404: "request.path", 405: "request.method"}
_PATH_CHARACTERS_MAX: Final = 200


def make_app(routes: Iterable[BaseRoute], rules: AccessRules, limits: HttpLimits) -> Starlette:
    """Every refusal, and a mistake of ours in a route, is answered in OpenAI's shape."""
    app = Starlette(
        routes=list(routes),
        middleware=[
            Middleware(Access, rules=rules, limits=limits),
            Middleware(RequestLimit, requests_max=limits.connections, always=rules.health_paths),
            Middleware(BodyLimit, limits=limits),
        ],
        exception_handlers={HTTPException: _http_error, Exception: _mistake},
    )
    # A path with one slash more is unknown, and not sent on to what the client said the host is.
    app.router.redirect_slashes = False
    return app


async def _http_error(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses: an unknown path, a method that a path does not take."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    path = request.url.path[:_PATH_CHARACTERS_MAX]
    message = f"{request.method} {path}: {HTTPStatus(status).phrase}"
    return Refusal(status, _CODES.get(status, "request.refused"), message).response(headers)


async def _mistake(request: Request, error: Exception) -> Response:
    """Of ours, in a route: the log has it, and the service goes on."""
    sentence = "the server made a mistake; its log tells more"
    return Refusal(500, "internal.error", sentence).response()
