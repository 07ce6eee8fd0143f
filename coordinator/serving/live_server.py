"""A server on a real port in a thread, and clients that speak bytes; for tests of its limits."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from coordinator.serving.access import AccessRules
from coordinator.serving.app import make_app
from coordinator.serving.http_limits import HttpLimits
from coordinator.serving.http_server import HttpServer, listen
from coordinator.serving.prompt_end import PromptEnd

ANSWER_S: Final = 30.0
LIMITS: Final = HttpLimits(body_bytes=1000, connections=50, request_ms=60_000)
OPEN: Final = AccessRules(
    api_key=None,
    health_paths=frozenset({"/health"}),
    open_paths=frozenset(),
    loopback_only=True,
)
GET: Final = b"GET /small HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


class RawClient:
    """Sends what it is told, byte for byte."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self) -> Answer:
        """The next one, by its content-length."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = self.socket.recv(1)
            if not byte:
                raise ConnectionError(f"closed after {head!r}")
            head += byte
        lines = head.decode("latin-1").split("\r\n")
        pairs = [line.split(": ", 1) for line in lines[1:] if line]
        headers = {name.lower(): value for name, value in pairs}
        body = b""
        while len(body) < int(headers.get("content-length", 0)):
            body += self.socket.recv(65536)
        return Answer(int(lines[0].split()[1]), headers, body)

    def is_closed(self) -> bool:
        """Waits for the end; whether it came. Whatever is read first is lost."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True

    def ask(self, data: bytes = GET) -> Answer:
        self.send(data)
        return self.answer()

    def close(self) -> None:
        self.socket.close()


class Routes:
    """What a server of a test answers. bodies: sizes that routes were given; left: disconnects."""

    def __init__(self) -> None:
        self.bodies: list[int] = []
        self.left = threading.Event()
        self.answering = threading.Event()

    async def small(self, request: Request) -> Response:
        self.bodies.append(len(await request.body()))
        return PlainTextResponse("small")

    async def slow(self, request: Request) -> Response:
        """Until its client has left."""
        self.answering.set()
        while not await request.is_disconnected():
            await asyncio.sleep(0.01)
        self.left.set()
        return PlainTextResponse("late")

    async def endless(self, request: Request) -> Response:
        async def parts() -> AsyncIterator[bytes]:
            try:
                while True:
                    self.answering.set()
                    yield b"x" * 65536
                    await asyncio.sleep(0)
            finally:
                self.left.set()

        return StreamingResponse(parts())

    async def mistake(self, request: Request) -> Response:
        raise ZeroDivisionError("planted")

    def all(self) -> list[Route]:
        return [
            Route("/small", self.small, methods=["GET", "POST"]),
            Route("/slow", self.slow, methods=["GET", "POST"]),
            Route("/endless", self.endless),
            Route("/mistake", self.mistake),
            Route("/health", self.small),
        ]


class LiveServer:
    """A running server on `port`."""

    def __init__(self, port: int, routes: Routes) -> None:
        self.port = port
        self.routes = routes
        self._clients: list[RawClient] = []

    def connect(self) -> RawClient:
        """Stays open until it is closed, or until the server has ended."""
        client = RawClient(self.port)
        self._clients.append(client)
        return client

    def close_clients(self) -> None:
        for client in self._clients:
            client.close()

    def ask(self, data: bytes = GET) -> Answer:
        """One request on a connection of its own."""
        client = self.connect()
        try:
            return client.ask(data)
        finally:
            client.close()


class _Server(PromptEnd, HttpServer):
    """The server of the product, but for how soon it ends."""


@contextmanager
def live_server(
    limits: HttpLimits = LIMITS, rules: AccessRules = OPEN, **changes: int
) -> Iterator[LiveServer]:
    """changes: to the limits, by name. Afterwards the server has ended, or the test fails."""
    routes = Routes()
    limits = replace(limits, **changes)
    server = _Server(make_app(routes.all(), rules, limits), limits, flush_ms=1000)
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    thread = threading.Thread(target=asyncio.run, args=(server.serve_on(listener),), daemon=True)
    thread.start()
    running = LiveServer(port, routes)
    try:
        yield running
    finally:
        server.end()
        thread.join(ANSWER_S)
        running.close_clients()
        if thread.is_alive():
            raise AssertionError("the server does not end")
