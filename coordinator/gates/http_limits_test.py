"""Clients that are slow, silent, greedy or broken, on a real server: others do not notice."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import pytest

from coordinator.gates.http_checks import demand_complete
from coordinator.gates.http_serving import ANSWER_S, HttpServing, http_serving
from coordinator.process_table import wait_until

HEAD: Final = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def connected(service: HttpServing, count: int, sent: bytes = b"") -> Iterator[list[socket.socket]]:
    """So many connections, each of which has sent this."""
    with ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = socket.create_connection(("127.0.0.1", service.port), ANSWER_S)
            stack.callback(client.close)
            if sent:
                client.sendall(sent)
            clients.append(client)
        yield clients


def answered(client: socket.socket) -> bytes:
    """All that comes, to the end of the connection."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while data := client.recv(65536):
            said += data
    return said


def demand_served(service: HttpServing) -> None:
    """A stream and a whole answer, each to its end, and health within a moment."""
    began = time.monotonic()
    assert service.ready()["ok"]
    assert time.monotonic() - began < 5.0
    demand_complete(service.stream(20).rest(), "length")
    assert service.complete()[0] == 200


def test_clients_that_never_finish_their_request() -> None:
    unfinished = [HEAD, HEAD + b"Content-Length: 90\r\n\r\n{", HEAD + b"X: " + b"a" * 9000]
    with http_serving(["--request-ms", "1500"]) as service, ExitStack() as stack:
        slow = [
            client
            for sent in unfinished
            for client in stack.enter_context(connected(service, 20, sent))
        ]
        demand_served(service)
        for client in slow:
            assert b" 408 " in answered(client)
        demand_served(service)
        assert service.end()[0] == 0


@pytest.mark.exhaustive
def test_idle_connections() -> None:
    with http_serving() as service, connected(service, 200):
        demand_served(service)
        code, seconds = service.end()
        assert (code, seconds < 5.0) == (0, True)


@pytest.mark.exhaustive
def test_more_connections_than_there_may_be() -> None:
    with http_serving(["--max-connections", "20"]) as service, connected(service, 100):
        demand_served(service)
        assert service.end()[0] == 0


def test_heads_and_bodies_that_are_too_large() -> None:
    with http_serving(["--max-body-bytes", "4096"]) as service:
        flood = HEAD + b"".join(b"X-%d: y\r\n" % number for number in range(400)) + b"\r\n"
        with connected(service, 20, flood) as clients:
            for client in clients:
                assert b" 431 " in answered(client)
        with connected(service, 4, HEAD + b"Content-Length: 99999999\r\n\r\n") as clients:
            for client in clients:
                assert b" 413 " in answered(client)
        status, answer = service.complete(prompt=[1] * 4096)
        assert (status, answer["error"]["code"]) == (413, "request.body_size")
        demand_served(service)
        assert service.end()[0] == 0


@pytest.mark.exhaustive
def test_rubbish() -> None:
    with http_serving() as service:
        with connected(service, 20, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\r\n\r\n") as clients:
            for client in clients:
                assert b" 400 " in answered(client)
        demand_served(service)
        assert "Traceback" not in service.log
        assert service.end()[0] == 0
        assert "Traceback" not in service.log


def test_readers_that_do_not_read() -> None:
    """Their requests go on or end; others are not held up, and all of it can be ended."""
    with http_serving() as service:
        streams = [service.stream(1000, logprobs=5) for _ in range(4)]
        demand_served(service)
        for stream in streams:
            stream.leave()
        assert wait_until(service.is_idle)
        demand_served(service)
        assert service.end()[0] == 0
