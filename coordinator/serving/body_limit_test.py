"""Bodies: whole before a route sees them, bounded one by one and together, refused readably."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.types import Message, Receive, Scope, Send

from coordinator.process_table import wait_until
from coordinator.serving.body_limit import BodyLimit
from coordinator.serving.live_server import LIMITS, Answer, RawClient, live_server

ONE = b"POST /small HTTP/1.1\r\nHost: localhost\r\n"


def posted(size: int) -> bytes:
    return ONE + b"Content-Length: %d\r\n\r\n" % size + b"b" * size


def chunked(*sizes: int) -> bytes:
    parts = [b"%x\r\n" % size + b"b" * size + b"\r\n" for size in sizes]
    return ONE + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(parts) + b"0\r\n\r\n"


def code(answer: Answer) -> str:
    return str(json.loads(answer.body)["error"]["code"])


@pytest.mark.parametrize("sent", [posted(1000), posted(0), chunked(999, 1), chunked()])
def test_what_fits(sent: bytes) -> None:
    with live_server() as server:
        assert server.ask(sent).body == b"small"
        assert server.routes.bodies == [sent.count(b"b")]


@pytest.mark.parametrize("sent", [posted(1001), posted(5_000_000), chunked(999, 2)])
def test_what_does_not(sent: bytes) -> None:
    """The client reads the refusal although it goes on sending."""
    with live_server() as server:
        answer = server.ask(sent)
        assert (answer.status, code(answer)) == (413, "request.body_size")
        assert answer.headers["connection"] == "close"
        assert server.routes.bodies == []


def test_a_body_that_is_only_announced() -> None:
    """Refused by its length alone, before the client sends it."""
    with live_server() as server:
        head = posted(1001)[:-1001].replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n")
        assert server.ask(head).status == 413


def test_whoever_sends_on_after_a_refusal_is_cut_off() -> None:
    with live_server() as server:
        client = server.connect()
        assert client.ask(chunked(999, 999)[:-5]).status == 413
        assert client.is_closed()


def test_all_bodies_together_are_bounded() -> None:
    with live_server(bodies_bytes=1650) as server:
        waiting: list[RawClient] = [server.connect() for _ in range(2)]
        for client in waiting:
            client.send(posted(900)[:-200])
        # Whoever is over the sum is refused, and gives back what it held.
        assert wait_until(lambda: server.ask(posted(300)).status == 503)
        refused = server.ask(posted(300))
        assert (refused.status, code(refused)) == (503, "overload.bodies")
        assert "retry-after" in refused.headers
        waiting[0].send(b"b" * 200)
        assert waiting[0].answer().status == 200
        waiting[1].close()
        assert wait_until(lambda: server.ask(posted(1000)).status == 200)
        assert server.ask(posted(0)).status == 200


def test_nothing_is_held_afterwards() -> None:
    """However a request ends: left in the middle, refused, or answered."""
    seen: list[int] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(limit.held_bytes)

    limit = BodyLimit(app, LIMITS)
    part: Message = {"type": "http.request", "body": b"b" * 600, "more_body": True}

    async def one(*parts: Message) -> None:
        coming = list(parts)

        async def receive() -> Message:
            return coming.pop(0) if coming else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            seen.append(limit.held_bytes)

        await limit({"type": "http", "headers": []}, receive, send)

    asyncio.run(one(part))
    assert (seen, limit.held_bytes) == ([], 0)
    asyncio.run(one(part, part))
    assert (seen, limit.held_bytes) == ([0, 0, 0], 0)
    asyncio.run(one({**part, "more_body": False}))
    assert (seen[3:], limit.held_bytes) == ([600], 0)
