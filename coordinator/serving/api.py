"""The OpenAI-compatible interface, as routes for a Starlette application. docs/spec/http.md."""

from __future__ import annotations

from starlette.routing import BaseRoute, Route

from coordinator.serving.api_options import ApiOptions
from coordinator.serving.completion_routes import ChatRoute, CompletionRoute
from coordinator.serving.front import Front
from coordinator.serving.plain_routes import plain_routes
from coordinator.serving.request_observer import NoObserver, RequestObserver
from coordinator.serving.served import Served
from coordinator.serving.text import ModelText


def api_routes(
    served: Served,
    text: ModelText,
    options: ApiOptions | None = None,
    observer: RequestObserver | None = None,
) -> list[BaseRoute]:
    """Completions, chat completions, models, tokens and live requests of one model."""
    front = Front(served, text, options or ApiOptions(), observer or NoObserver())
    completions, chat = CompletionRoute(front), ChatRoute(front)
    return [
        Route(completions.path, completions, methods=["POST"]),
        Route(chat.path, chat, methods=["POST"]),
        *plain_routes(front),
    ]
