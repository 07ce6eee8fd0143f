"""The routes of whoever looks: /metrics, and the running engine and its steps as JSON.

Read-only. A step's statistics take milliseconds, so they are worked out in a thread of Starlette's
pool, one at a time, and not on the event loop.
"""

from __future__ import annotations

import re
from threading import Lock
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from coordinator.serving.engine_view import engine_json
from coordinator.serving.errors_http import JSON_TYPE, error_response, json_bytes
from coordinator.serving.metrics import METRICS_TYPE, Metrics
from coordinator.serving.served import Served
from coordinator.serving.step_view import step_json
from coordinator.serving.steps import StepLog
from errors import RequestError

# What is shown is true for a moment.
_HEADERS: Final = {"cache-control": "no-store"}
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,15}", re.ASCII)


def observe_routes(served: Served, log: StepLog, metrics: Metrics) -> list[Route]:
    """GET /metrics, GET /v1/engine, GET /v1/engine/steps/{step} (docs/spec/http.md H40 to H43)."""
    one_at_a_time = Lock()

    async def engine(request: Request) -> Response:
        return _json(engine_json(served, log))

    def step(request: Request) -> Response:
        number = request.path_params["step"]
        found = log.find(int(number)) if _NUMBER.fullmatch(number) else None
        if found is None:
            rule = f"{number[:20]}: is not among the last steps, which are all that is kept"
            return error_response(RequestError("request.not_found", rule, param="step"))
        with one_at_a_time:
            return _json(step_json(found))

    async def exposition(request: Request) -> Response:
        return Response(metrics.exposition(served), 200, _HEADERS, METRICS_TYPE)

    return [
        Route("/metrics", exposition, methods=["GET"]),
        Route("/v1/engine", engine, methods=["GET"]),
        Route("/v1/engine/steps/{step}", step, methods=["GET"]),
    ]


def _json(value: object) -> Response:
    return Response(json_bytes(value), 200, _HEADERS, JSON_TYPE)
