"""Slow, greedy, silent and broken clients lose their connection, and nobody else notices."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from dataclasses import replace
from pathlib import Path

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from coordinator.process_table import wait_until
from coordinator.serving.app import make_app
from coordinator.serving.http_limits import CONNECTIONS_RESERVED
from coordinator.serving.http_protocol import GuardedProtocol
from coordinator.serving.http_server import HttpServer, listen
from coordinator.serving.live_server import GET, LIMITS, OPEN, Answer, RawClient, live_server
from tools.python.tiers import mostly_exhaustive

POST = b"POST /small HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
HEALTH = GET.replace(b"/small", b"/health")


def code(answer: Answer) -> str:
    """Of an error in OpenAI's shape."""
    error = json.loads(answer.body)["error"]
    assert set(error) >= {"message", "type", "param", "code"}
    return str(error["code"])


def test_requests_one_after_the_other_on_one_connection() -> None:
    with live_server() as server:
        client = server.connect()
        for _ in range(3):
            assert client.ask().body == b"small"
        assert client.ask(POST + b"0123456789").status == 200
        assert server.routes.bodies == [0, 0, 0, 10]


# What each has sent when its time is over; none of it is a whole request.
SLOW = {
    "half a line": b"GET /sm",
    "half a head": GET[:-2],
    "no body": POST,
    "half a body": POST + b"01234",
    "an unfinished chunk": b"POST /small HTTP/1.1\r\nHost: localhost\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n5\r\n012",
}


@pytest.mark.parametrize(
    "sent", mostly_exhaustive(SLOW.values(), lambda sent: sent != SLOW["half a line"]), ids=SLOW
)
def test_a_request_that_does_not_arrive_whole(sent: bytes) -> None:
    with live_server(request_ms=600) as server:
        slow = server.connect()
        answer = slow.ask(sent)
        assert (answer.status, code(answer)) == (408, "request.time")
        assert slow.is_closed()
        assert server.routes.bodies == []


@pytest.mark.parametrize("sent", [b"GET /small HTTP/1.1\r\nHost: localhost\r\nX: ", POST[:-2]])
def test_bytes_that_trickle_in_do_not_extend_it(sent: bytes) -> None:
    with live_server(request_ms=300) as server:
        slow = server.connect()
        slow.send(sent)
        began = time.monotonic()
        with contextlib.suppress(OSError):
            while time.monotonic() - began < 20.0:
                slow.send(b"a")
                time.sleep(0.05)
        assert time.monotonic() - began < 10.0


def test_the_second_request_of_a_connection_has_a_deadline_too() -> None:
    with live_server(request_ms=1000) as server:
        slow = server.connect()
        assert slow.ask().status == 200
        assert code(slow.ask(b"GET /sm")) == "request.time"
        pipelined = server.connect()
        assert pipelined.ask(GET + b"GET /sm").status == 200
        assert code(pipelined.answer()) == "request.time"


@pytest.mark.parametrize(
    "sent", mostly_exhaustive(SLOW.values(), lambda sent: sent == SLOW["half a head"]), ids=SLOW
)
def test_without_the_guard_they_would_stay(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """What uvicorn alone does: so the tests above can fail."""
    monkeypatch.setattr(GuardedProtocol, "_watch_request", lambda self: None)
    with live_server(request_ms=200) as server:
        slow = server.connect()
        slow.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            slow.ask(sent)
        slow.close()


@pytest.mark.exhaustive
def test_without_the_guard_a_greedy_one_would_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardedProtocol, "pause_writing", H11Protocol.pause_writing)
    with live_server(stall_ms=300) as server:
        greedy = server.connect()
        greedy.send(GET.replace(b"/small", b"/endless"))
        assert not server.routes.left.wait(1.0)
        greedy.close()


def test_silence_is_closed_without_a_word() -> None:
    with live_server(request_ms=200) as server:
        silent = server.connect()
        assert silent.socket.recv(1000) == b""


@pytest.mark.exhaustive
def test_a_request_whose_answer_takes_longer_is_left_alone() -> None:
    with live_server(request_ms=1000) as server:
        client = server.connect()
        client.send(GET.replace(b"/small", b"/slow"))
        assert server.routes.answering.wait(20.0)
        time.sleep(1.5)
        assert not server.routes.left.is_set()
        client.close()
        assert server.routes.left.wait(20.0)


def test_a_client_that_takes_nothing_of_its_answer() -> None:
    with live_server(stall_ms=300) as server:
        greedy = server.connect()
        greedy.send(GET.replace(b"/small", b"/endless"))
        assert server.routes.left.wait(20.0)
        assert server.ask().status == 200


@pytest.mark.exhaustive
def test_a_client_that_takes_its_answer_slowly_keeps_it() -> None:
    """The stall's clock starts again whenever something was taken."""
    with live_server(stall_ms=1000) as server:
        client = server.connect()
        client.send(GET.replace(b"/small", b"/endless"))
        began = time.monotonic()
        while time.monotonic() - began < 3.0:
            assert client.socket.recv(1 << 20)
        assert not server.routes.left.is_set()
        client.close()
        assert server.routes.left.wait(20.0)


def test_idle_connections_make_room() -> None:
    with live_server(connections=20) as server:
        idle = [server.connect() for _ in range(60 + CONNECTIONS_RESERVED)]
        assert server.ask().status == 200
        assert idle[0].is_closed()
        # The last to come are still there.
        assert idle[-1].ask().status == 200


def test_busy_connections_do_not() -> None:
    with live_server(connections=3) as server:
        busy = [server.connect() for _ in range(3)]
        for client in busy:
            server.routes.answering.clear()
            client.send(GET.replace(b"/small", b"/slow"))
            assert server.routes.answering.wait(20.0)
        refused = server.ask()
        assert (refused.status, code(refused)) == (503, "overload.connections")
        # Whoever watches over it is not told that it is broken.
        assert server.ask(HEALTH).status == 200
        assert "retry-after" in refused.headers
        busy[0].close()
        assert wait_until(lambda: _is_served(server.connect()))


def test_there_are_never_more_than_the_reserved_ones_beyond() -> None:
    with live_server(connections=3) as server:
        busy = [server.connect() for _ in range(3 + CONNECTIONS_RESERVED)]
        for client in busy:
            client.send(POST.replace(b"/small", b"/health")[:-2] + b"Expect: 100-continue\r\n\r\n")
            assert client.answer().status == 100
        refused = server.connect().answer()
        assert (refused.status, code(refused)) == (503, "overload.connections")
        busy[0].close()
        assert wait_until(lambda: _is_served(server.connect()))


def _is_served(client: RawClient) -> bool:
    with contextlib.suppress(OSError):
        return client.ask().status == 200
    return False


def test_two_hundred_idle_connections_do_not_stall_another() -> None:
    with live_server(connections=500) as server:
        idle = [server.connect() for _ in range(200)]
        began = time.monotonic()
        for _ in range(20):
            assert server.ask().status == 200
        assert time.monotonic() - began < 10.0
        for client in idle:
            client.close()


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_crowd_is_not_let_in_before_it_is_turned_away() -> None:
    """Descriptors are for the ranks too."""

    async def most_descriptors() -> int:
        limits = replace(LIMITS, connections=3)
        server = HttpServer(make_app([], OPEN, limits), limits, flush_ms=100)
        listener = listen("127.0.0.1", 0)
        address = listener.getsockname()
        serving = asyncio.create_task(server.serve_on(listener))
        while not server.started:
            await asyncio.sleep(0.01)
        # The loop stands still meanwhile: the kernel answers them all.
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(socket.create_connection(address, timeout=5.0))
            before = descriptors()
            most = 0
            for _ in range(200):
                await asyncio.sleep(0)
                most = max(most, descriptors() - before)
        server.end()
        await serving
        return most

    assert 3 <= asyncio.run(most_descriptors()) < 96


BROKEN = {
    "no HTTP": (b"\x16\x03\x01\x02\x00\x01\r\n\r\n", 400, "request.http"),
    "nothing": (b"\r\n\r\n", 400, "request.http"),
    "no host": (b"GET /small HTTP/1.1\r\n\r\n", 400, "request.http"),
    "two lengths": (POST[:-2] + b"Content-Length: 11\r\n\r\n", 400, "request.http"),
    "a length below zero": (POST.replace(b"10", b"-1"), 400, "request.http"),
    "a line without end": (b"GET /" + b"a" * 40_000, 431, "request.head"),
    "a large header": (GET[:-2] + b"X: " + b"a" * 40_000, 431, "request.head"),
    "many headers": (GET[:-2] + b"X: y\r\n" * 200 + b"\r\n", 431, "request.head"),
    "a large head in one piece": (
        GET[:-2] + b"X: " + b"a" * 33_000 + b"\r\n\r\n",
        431,
        "request.head",
    ),
    "a large target": (
        GET.replace(b"small", b"small?" + b"a" * 33_000),
        431,
        "request.head",
    ),
    "a length and chunks": (
        POST[:-2] + b"Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        400,
        "request.http",
    ),
    "a slash more": (GET.replace(b"small", b"small/"), 404, "request.path"),
    "an unknown path": (GET.replace(b"small", b"smaller"), 404, "request.path"),
    "an unknown method": (GET.replace(b"GET", b"PUT"), 405, "request.method"),
    "a mistake of ours": (GET.replace(b"small", b"mistake"), 500, "internal.error"),
}


@pytest.mark.parametrize(("sent", "status", "expected"), BROKEN.values(), ids=BROKEN)
def test_what_is_refused(sent: bytes, status: int, expected: str) -> None:
    with live_server() as server:
        answer = server.ask(sent)
        assert (answer.status, code(answer)) == (status, expected)
        assert server.ask().status == 200


def test_rubbish_in_the_middle_of_a_body_that_is_being_answered() -> None:
    """Two answers at once would be none; the connection just ends."""
    with live_server() as server:
        client = server.connect()
        client.send(
            b"POST /slow HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            b"2\r\nok\r\nzz\r\n"
        )
        assert client.is_closed()
        assert server.ask().status == 200


def test_it_ends_although_clients_are_there() -> None:
    """Idle, sending, reading and stuck ones."""
    with live_server() as server:
        # Not closed with the server: who closes first is the question.
        clients = [RawClient(server.port) for _ in range(4)]
        clients[1].send(POST)
        clients[2].send(GET.replace(b"/small", b"/endless"))
        clients[3].send(GET.replace(b"/small", b"/slow"))
        assert server.routes.answering.wait(20.0)
    assert all(client.is_closed() for client in clients)
    for client in clients:
        client.close()
