"""A server that answers what the page asks for from a script, for tests of the page alone.

`FakeEngineServer` runs it in a thread on a port of its own; a test changes what it says meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from coordinator.serving.errors_http import error_type
from coordinator.serving.fake_engine_story import engine, step_detail
from coordinator.serving.page import page_routes

START_S: Final = 20.0
WORDS: Final = (" a", " +", " b", "\n", "\n", "def", " sub", "(a", ",", " b", "):")


def _error(status: int, code: str, message: str) -> JSONResponse:
    error = {"message": message, "type": error_type(status), "param": None, "code": code}
    return JSONResponse({"error": error}, status)


class FakeEngineServer:
    """engine: what GET /v1/engine says. key: the API key asked for, if any.

    token_s: between two chunks of an answer. words: of the answer. broken: the error event that
    ends an answer early. kept: the oldest step that can still be opened. nonfinite: values of one
    frame that are not finite. elsewhere: requests that did not come over HTTP. deleted, prompts
    and hang_ups: what clients did.
    """

    def __init__(self, engine_json: dict[str, Any] | None = None) -> None:
        self.engine = engine(100) if engine_json is None else engine_json
        self.key: str | None = None
        self.token_s = 0.01
        self.words: tuple[str, ...] = WORDS
        self.broken: Mapping[str, Any] | None = None
        self.kept = 0
        self.nonfinite = 0
        self.refuse_delete = False
        self.elsewhere: frozenset[int] = frozenset()
        self.deleted: list[str] = []
        self.prompts: list[dict[str, Any]] = []
        self.hang_ups = 0
        self.port = 0
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> FakeEngineServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, on the same port as before if it listened before."""
        config = uvicorn.Config(
            self._app(),
            host="127.0.0.1",
            port=self.port,
            log_level="error",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="fake engine server")
        self._thread.start()
        deadline = time.monotonic() + START_S
        while not self._server.started:
            if time.monotonic() > deadline or not self._thread.is_alive():
                raise RuntimeError("the fake server did not start")
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        """Stop listening and end every connection, as a server that is gone."""
        if self._server is None or self._thread is None:
            return
        self._server.should_exit = True
        self._thread.join(START_S)
        if self._thread.is_alive():
            raise RuntimeError("the fake server did not end")
        self._server = self._thread = None

    def _app(self) -> Starlette:
        return Starlette(
            routes=[
                *page_routes(),
                Route("/v1/engine", self._engine),
                Route("/v1/engine/steps/{step:int}", self._step),
                Route("/v1/completions", self._complete, methods=["POST"]),
                Route("/v1/requests", self._requests),
                Route("/v1/requests/{name}", self._delete, methods=["DELETE"]),
            ]
        )

    def _refused(self, request: Request) -> Response | None:
        if self.key is None or request.headers.get("authorization") == f"Bearer {self.key}":
            return None
        return _error(401, "authentication.key", "the API key is wrong")

    async def _engine(self, request: Request) -> Response:
        return self._refused(request) or JSONResponse(self.engine)

    async def _step(self, request: Request) -> Response:
        step = request.path_params["step"]
        newest = max((known["step"] for known in self.engine["steps"]), default=-1)
        if not self.kept <= step <= newest:
            return _error(404, "request.not_found", f"step {step} is not kept")
        detail = step_detail(step, self.engine["world_size"])
        detail["frames"][-1]["statistics"]["nonfinite"] = self.nonfinite
        return self._refused(request) or JSONResponse(detail)

    async def _requests(self, request: Request) -> Response:
        data = [
            {"id": _name(one["id"]), "choices": [{"index": 0, "request_id": one["id"]}]}
            for one in self.engine["requests"]
            if one["id"] not in self.elsewhere
        ]
        return self._refused(request) or JSONResponse({"object": "list", "data": data})

    async def _delete(self, request: Request) -> Response:
        if self.refuse_delete:
            return _error(503, "overload.stopping", "the service is stopping")
        name = request.path_params["name"]
        self.deleted.append(name)
        left = [one for one in self.engine["requests"] if _name(one["id"]) != name]
        self.engine = {**self.engine, "requests": left}
        told = {"id": name, "object": "request", "cancelled": True}
        return self._refused(request) or JSONResponse(told)

    async def _complete(self, request: Request) -> Response:
        body = await request.json()
        self.prompts.append(body)
        return self._refused(request) or StreamingResponse(
            self._chunks(), media_type="text/event-stream"
        )

    async def _chunks(self) -> AsyncIterator[str]:
        finished = False
        try:
            for word in self.words:
                await asyncio.sleep(self.token_s)
                yield _event({"choices": [{"index": 0, "text": word, "finish_reason": None}]})
            if self.broken is not None:
                yield _event({"error": dict(self.broken)})
            else:
                yield _event({"choices": [{"index": 0, "text": "", "finish_reason": "length"}]})
                usage = {"prompt_tokens": 12, "completion_tokens": len(self.words)}
                yield _event({"choices": [], "usage": usage})
                yield "data: [DONE]\n\n"
            finished = True
        finally:
            self.hang_ups += not finished


def _name(request_id: int) -> str:
    return f"cmpl-{request_id:04d}"


def _event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"
