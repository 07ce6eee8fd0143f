"""What POST /v1/completions and POST /v1/chat/completions have in common.

An ASGI application of its own: one place holds a request from its first byte to its last, so that a
client who leaves, at any time, ends what it asked for.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from coordinator.request import RequestEvent
from coordinator.serving.choice import Choice
from coordinator.serving.direct_write import direct_write
from coordinator.serving.errors_http import JSON_TYPE, error_response, json_bytes
from coordinator.serving.event_writer import EventWriter
from coordinator.serving.front import Front
from coordinator.serving.job import Job
from coordinator.serving.json_body import ClientGone, read_object
from coordinator.serving.parameters import Common
from coordinator.serving.shapes import Json, Shape, usage
from coordinator.serving.stream import EventStream
from errors import TPError
from program.strict_json import JsonObject

ID_HEADER: Final = "x-request-id"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A valid body: its choices, not yet submitted."""

    choices: list[Choice]
    common: Common


@dataclass(frozen=True, slots=True)
class _Exchange:
    """One request over HTTP. watcher: done when the client has left."""

    job: Job
    common: Common
    watcher: asyncio.Task[None]
    scope: Scope
    receive: Receive
    send: Send


class GenerateRoute(ABC):
    """path: as `GET /v1/requests` names the endpoint."""

    path: str

    def __init__(self, front: Front, shape: Shape) -> None:
        self._front = front
        self._shape = shape

    @abstractmethod
    async def prepare(self, body: JsonObject, arrived: float) -> Prepared:
        """Raises RequestError."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        front = self._front
        try:
            body = await read_object(scope, receive, front.options)
            prepared = await self.prepare(body, front.served.clock())
        except ClientGone:
            return
        except TPError as error:
            front.observer.finished("refused", error.code)
            await error_response(error)(scope, receive, send)
            return
        stream = prepared.common.stream
        job = front.job(self._shape.id_prefix, self.path, stream, prepared.choices)
        watcher = asyncio.create_task(_until_gone(receive))
        watcher.add_done_callback(lambda _: job.leave(RequestEvent.DISCONNECT))
        exchange = _Exchange(job, prepared.common, watcher, scope, receive, send)
        try:
            await (self._stream(exchange) if stream else self._answer(exchange))
        finally:
            watcher.cancel()
            # Whatever ended this: nothing goes on without a client.
            job.leave(RequestEvent.DISCONNECT)

    async def _answer(self, exchange: _Exchange) -> None:
        job = exchange.job
        if not await self._submitted(exchange):
            return
        await _first(job.done, exchange.watcher)
        if not job.done.done():
            return
        job.raise_mistake()
        if job.error is not None:
            response = error_response(job.error)
        else:
            told = self._described(job, self._shape.answer_object)
            told["choices"] = [self._shape.whole(choice) for choice in job.choices]
            told["usage"] = usage(job.choices)
            if exchange.common.timings:
                told["timings"] = job.choices[0].timings()
            headers = {ID_HEADER: job.named.id}
            response = Response(json_bytes(told), 200, headers, JSON_TYPE)
        await response(exchange.scope, exchange.receive, exchange.send)

    async def _stream(self, exchange: _Exchange) -> None:
        job = exchange.job
        front = self._front
        stream = EventStream(front.options, lambda: job.leave(RequestEvent.DISCONNECT), front.soon)
        exchange.watcher.add_done_callback(lambda _: stream.close())
        described = self._described(job, self._shape.chunk_object)
        job.listener = EventWriter(job, self._shape, described, exchange.common, stream)
        if not await self._submitted(exchange):
            return
        await _first(job.begun, exchange.watcher)
        if not job.begun.done():
            return
        if job.error is not None and job.silent:
            # Nothing was sent yet, so the failure can still be the status.
            job.raise_mistake()
            await error_response(job.error)(exchange.scope, exchange.receive, exchange.send)
            return
        headers = [(ID_HEADER.encode(), job.named.id.encode())]
        await stream.run(exchange.send, headers, direct_write(exchange.scope))
        job.raise_mistake()

    async def _submitted(self, exchange: _Exchange) -> bool:
        """False when the service takes no request now, which is then answered."""
        try:
            exchange.job.submit()
        except TPError as refused:
            self._front.observer.finished("refused", refused.code)
            await error_response(refused)(exchange.scope, exchange.receive, exchange.send)
            return False
        self._front.requests.add(exchange.job)
        return True

    def _described(self, job: Job, kind: str) -> Json:
        return {
            "id": job.named.id,
            "object": kind,
            "created": job.named.created,
            "model": self._front.served.model_id,
        }


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        # The rest of a body that nobody waits for.
        continue


async def _first(one: asyncio.Future[None], watcher: asyncio.Task[None]) -> None:
    await asyncio.wait({one, watcher}, return_when=asyncio.FIRST_COMPLETED)
