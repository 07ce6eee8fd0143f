"""The routes that answer at once: models, tokens, and the requests that live."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from coordinator.request import RequestEvent
from coordinator.serving.chat_body import take_conversation
from coordinator.serving.errors_http import JSON_TYPE, error_response, json_bytes
from coordinator.serving.fields import Fields, missing, unsupported
from coordinator.serving.front import Front
from coordinator.serving.job import Job
from coordinator.serving.json_body import ClientGone, read_object
from coordinator.serving.parameters import take_model, token_ids
from errors import RequestError, TPError
from program.strict_json import JsonObject

_OF_CONVERSATIONS: Final = ("messages", "add_generation_prompt", "chat_template_kwargs")

Json = dict[str, object]
BodyHandler = Callable[[JsonObject], Awaitable[Json]]
Handler = Callable[[Request], Awaitable[Response]]


def plain_routes(front: Front) -> list[BaseRoute]:
    """Everything but the two endpoints that generate."""
    tokens, models, requests = _Tokens(front), _Models(front), _Requests(front)
    return [
        Route("/tokenize", _posted(front, tokens.tokenize), methods=["POST"]),
        Route("/detokenize", _posted(front, tokens.detokenize), methods=["POST"]),
        Route("/v1/models", _got(models.every), methods=["GET"]),
        Route("/v1/models/{model:path}", _got(models.one), methods=["GET"]),
        Route("/v1/requests", _got(requests.every), methods=["GET"]),
        Route("/v1/requests/{id}", _got(requests.one), methods=["GET"]),
        Route("/v1/requests/{id}", _got(requests.cancel), methods=["DELETE"]),
    ]


def _got(answer: Callable[[Request], Json]) -> Handler:
    async def handler(request: Request) -> Response:
        try:
            return Response(json_bytes(answer(request)), 200, None, JSON_TYPE)
        except TPError as error:
            return error_response(error)

    return handler


def _posted(front: Front, answer: BodyHandler) -> Handler:
    async def handler(request: Request) -> Response:
        try:
            body = await read_object(request.scope, request.receive, front.options)
            return Response(json_bytes(await answer(body)), 200, None, JSON_TYPE)
        except TPError as error:
            return error_response(error)
        except ClientGone:
            return Response(status_code=400)

    return handler


class _Models:
    def __init__(self, front: Front) -> None:
        self._served = front.served

    def every(self, request: Request) -> Json:
        return {"object": "list", "data": [self._model()]}

    def one(self, request: Request) -> Json:
        name = str(request.path_params["model"])
        if name != self._served.model_id:
            rule = f"model = {name[:60]!r}: is not served here"
            raise RequestError("request.model", rule, param="model")
        return self._model()

    def _model(self) -> Json:
        return {
            "id": self._served.model_id,
            "object": "model",
            "created": self._served.created,
            "owned_by": "rankproof",
            "max_model_len": self._served.limits.context_tokens,
        }


class _Tokens:
    def __init__(self, front: Front) -> None:
        self._front = front

    async def tokenize(self, body: JsonObject) -> Json:
        """A prompt, or messages as the chat endpoint would make one of."""
        fields = Fields(body)
        take_model(fields, self._front.served.model_id)
        if fields.boolean("add_special_tokens"):
            raise unsupported("add_special_tokens", "must be false: prompts are taken as they are")
        strings = fields.boolean("return_token_strs")
        text = fields.text("prompt")
        if text is None:
            if body.get("messages") is None:
                raise missing("prompt")
            text = await self._front.render(take_conversation(fields))
        else:
            for key in _OF_CONVERSATIONS:
                if body.get(key) is None:
                    fields.take(key)
        fields.end()
        ids = await self._front.encode(text)
        pieces = await asyncio.to_thread(self._names, ids) if strings else None
        return {
            "count": len(ids),
            "max_model_len": self._front.served.limits.context_tokens,
            "tokens": ids,
            "token_strs": pieces,
        }

    def _names(self, ids: list[int]) -> list[str]:
        return [self._front.text.name(token_id) for token_id in ids]

    async def detokenize(self, body: JsonObject) -> Json:
        """Text of token ids; special tokens are no text."""
        fields = Fields(body)
        take_model(fields, self._front.served.model_id)
        if body.get("tokens") is None:
            raise missing("tokens")
        tokens = fields.array("tokens", self._front.options.body_bytes_max)
        fields.end()
        ids = token_ids("tokens", tokens, self._front.served.limits)
        return {"prompt": await asyncio.to_thread(self._front.text.decode, ids)}


class _Requests:
    def __init__(self, front: Front) -> None:
        self._live = front.requests

    def every(self, request: Request) -> Json:
        return {"object": "list", "data": self._live.listing()}

    def one(self, request: Request) -> Json:
        return self._live.shown(self._found(request))

    def cancel(self, request: Request) -> Json:
        """Its client is told `request.cancelled`."""
        job = self._found(request)
        job.leave(RequestEvent.CANCEL)
        return {"id": job.named.id, "object": "request", "cancelled": True}

    def _found(self, request: Request) -> Job:
        request_id = str(request.path_params["id"])
        job = self._live.find(request_id)
        if job is None:
            rule = f"id = {request_id[:60]!r}: no such request lives"
            raise RequestError("request.not_found", rule, param="id")
        return job
