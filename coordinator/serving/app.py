"""The application: routes, and around them who may ask, how much, and how errors look."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from coordinator.serving.access import Access, AccessRules
from coordinator.serving.body_limit import BodyLimit
from coordinator.serving.errors_http import http_exception
from coordinator.serving.http_limits import HttpLimits


def make_app(routes: Iterable[BaseRoute], rules: AccessRules, limits: HttpLimits) -> Starlette:
    """Every refusal, and a mistake of ours in a route, is answered in OpenAI's shape."""
    return Starlette(
        routes=list(routes),
        middleware=[
            Middleware(Access, rules=rules, limits=limits),
            Middleware(BodyLimit, limits=limits),
        ],
        exception_handlers={HTTPException: http_exception, Exception: http_exception},
    )
