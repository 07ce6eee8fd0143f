"""A client that leaves, in every phase and by every way, ends what it asked for."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from itertools import product

import httpx2
import openai
import pytest

from coordinator.request import RequestEvent
from coordinator.serving.api_client import (
    MODEL,
    PATHS,
    endless,
    endless_streams,
    sent,
    service,
    until,
)
from coordinator.serving.api_options import ApiOptions
from coordinator.serving.fake_served import FakeServed
from tools.python.tiers import mostly_exhaustive


def reset(connection: socket.socket) -> None:
    """Leaves without a goodbye."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    connection.close()


def half_close(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)


WAYS = {"close": socket.socket.close, "reset": reset, "half": half_close}


def clean_request(client: openai.OpenAI) -> None:
    """The service is as good as new."""
    answer = client.completions.create(model=MODEL, prompt="ab", max_tokens=5)
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("path", "stream", "way"),
    mostly_exhaustive(
        product(PATHS, [False, True], WAYS),
        lambda case: case[0] == PATHS[case[1]] and case[2] != "reset",
    ),
)
def test_in_decode(path: str, stream: bool, way: str) -> None:
    """The running step is the last that works for it; the next one lets it go."""
    with service() as (served, server, client):
        with sent(server, path, endless(path, stream=stream)) as connection:
            until(lambda: len(served.ranks.plans) >= 5)
            served.hold()
            until(served.ranks.held.is_set)
            WAYS[way](connection)
            until(lambda: served.ended == [(0, RequestEvent.DISCONNECT)])
            before = len(served.ranks.plans)
            served.release()
            until(lambda: served.idle)
        assert len(served.ranks.plans) <= before + 2
        until(lambda: httpx2.get(server.url + "/v1/requests").json()["data"] == [])
        clean_request(client)


@pytest.mark.parametrize(
    ("stream", "early"),
    mostly_exhaustive(
        product([False, True], [b"GET ", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"x" * 100_000]),
        lambda case: case[0] and case[1] != b"GET ",
    ),
)
def test_after_sending_its_next_request_early(stream: bool, early: bytes) -> None:
    with service() as (served, server, client):
        with sent(server, PATHS[0], endless(stream=stream)) as connection:
            until(lambda: len(served.ranks.plans) >= 5)
            with suppress(OSError):
                connection.sendall(early)
        until(lambda: served.idle)
        assert served.ended == [(0, RequestEvent.DISCONNECT)]
        clean_request(client)


@pytest.mark.parametrize("stream", [False, True])
def test_in_prefill(stream: bool) -> None:
    """900 tokens would take 15 steps."""
    with service() as (served, server, client):
        served.ranks.step_s = 0.02
        told = {"prompt": [1] * 900, "max_tokens": 10, "stream": stream}
        with sent(server, PATHS[0], told) as connection:
            until(lambda: len(served.ranks.plans) >= 2)
            served.hold()
            until(served.ranks.held.is_set)
            connection.close()
            until(lambda: served.ended == [(0, RequestEvent.DISCONNECT)])
            before = len(served.ranks.plans)
            served.release()
            until(lambda: served.idle)
        assert len(served.ranks.plans) <= before + 2 < 15
        clean_request(client)


@pytest.mark.parametrize("stream", [False, True])
def test_in_the_queue(stream: bool) -> None:
    with service() as (served, server, client):
        running = endless_streams(client, 4)
        with sent(server, PATHS[0], endless(stream=stream)) as connection:
            until(lambda: len(served.engine.snapshot.scheduler.waiting) == 1)
            connection.close()
            until(lambda: not served.engine.snapshot.scheduler.waiting)
        assert served.ended == [(4, RequestEvent.DISCONNECT)]
        for one in running:
            one.close()
        until(lambda: served.idle)
        clean_request(client)


def test_while_its_request_is_on_its_way_to_the_engine() -> None:
    """The running step is held, so the engine has not even seen the request."""
    with service() as (served, server, client):
        with sent(server, PATHS[0], endless()):
            until(lambda: len(served.ranks.plans) >= 1)
            served.hold()
            until(served.ranks.held.is_set)
            with sent(server, PATHS[0], endless()):
                until(lambda: len(served.submitted) == 2)
            until(lambda: (1, RequestEvent.DISCONNECT) in served.ended)
            served.release()
        until(lambda: served.idle)
        plans = served.ranks.plans
        assert {admit.request_id for plan in plans for admit in plan.admissions} == {0}
        clean_request(client)


def test_in_the_middle_of_its_body() -> None:
    with service() as (served, server, client):
        with closing(socket.create_connection(("127.0.0.1", server.port))) as connection:
            head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            connection.sendall(head + b'Content-Length: 100\r\n\r\n{"prompt"')
            time.sleep(0.05)
        clean_request(client)
        assert len(served.submitted) == 1


def test_a_batch_ends_as_a_whole() -> None:
    with service() as (served, server, client):
        told = endless() | {"prompt": ["a", "b", "c", "d", "e", "f"]}
        with sent(server, PATHS[0], told):
            until(lambda: len(served.ranks.plans) >= 3)
        until(lambda: served.idle)
        assert sorted(number for number, _ in served.ended) == list(range(6))
        clean_request(client)


@pytest.mark.exhaustive
def test_streams_closed_by_the_client_library() -> None:
    with service() as (served, _, client):
        for _ in range(20):
            (stream,) = endless_streams(client, 1)
            stream.close()
            until(lambda: served.idle)
        clean_request(client)


@contextmanager
def unread(
    options: ApiOptions, **extra: object
) -> Iterator[tuple[FakeServed, openai.OpenAI, socket.socket]]:
    """A stream of which the client reads nothing, with little room between the two."""
    told = endless(stream=True, logprobs=20) | extra
    with (
        service(options, send_buffer_bytes=8192) as (served, server, client),
        sent(server, PATHS[0], told, receive_buffer_bytes=4096) as connection,
    ):
        yield served, client, connection


@pytest.mark.exhaustive
def test_a_reader_that_leaves_too_much_unread() -> None:
    options = ApiOptions(unread_bytes_max=50_000, send_ms=600_000)
    with unread(options) as (served, client, _):
        until(lambda: served.ended == [(0, RequestEvent.DISCONNECT)])
        until(lambda: served.idle)
        clean_request(client)


def test_a_reader_that_takes_nothing_for_too_long() -> None:
    options = ApiOptions(unread_bytes_max=1 << 30, send_ms=50)
    with unread(options) as (served, client, _):
        until(lambda: served.ended == [(0, RequestEvent.DISCONNECT)])
        until(lambda: served.idle)
        clean_request(client)


def test_a_slow_reader_gets_everything() -> None:
    with unread(ApiOptions(unread_bytes_max=1 << 30), max_tokens=300) as (_, _, connection):
        data = b""
        while not data.endswith(b"0\r\n\r\n"):
            data += connection.recv(2048)
            time.sleep(0.0005)
        assert data.count(b"[DONE]") == 1
        assert data.count(b'"finish_reason":"length"') == 1
        assert data.count(b"data: ") == 302
