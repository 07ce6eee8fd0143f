"""Every way in which a request can end has its name, and a stream is read however it is cut."""

from __future__ import annotations

import asyncio
import socket

import pytest

from errors import ConfigError, TPError
from tools.bench.serve_client import (
    CUT,
    DONE,
    LATE,
    LEFT,
    UNREACHABLE,
    Answer,
    Endpoint,
    get_json,
    stream,
)
from tools.bench.serve_fake import Fake
from tools.bench.serve_loads import COMPLETIONS, text_of

BODY = {"max_tokens": 4}


def ask(fake: Fake, *, timeout_s: float = 20.0, leave_after: int | None = None) -> Answer:
    async def run() -> Answer:
        async with fake.running() as endpoint:
            answer = Answer("one", asyncio.get_running_loop().time())
            await stream(
                endpoint,
                COMPLETIONS,
                BODY,
                answer,
                timeout_s=timeout_s,
                leave_after=leave_after,
            )
            return answer

    return asyncio.run(run())


@pytest.mark.parametrize("piece_bytes", [0, 1, 3, 7])
def test_a_whole_stream(piece_bytes: int) -> None:
    fake = Fake(piece_bytes=piece_bytes)
    answer = ask(fake)
    assert answer.end == DONE
    assert text_of(answer) == "t0t1t2t3"
    times = [at for at, _ in answer.events]
    assert answer.due <= answer.sent <= times[0] <= times[-1] <= answer.ended
    assert fake.requests == [BODY]
    assert fake.keys == ["Bearer a-key"]


@pytest.mark.parametrize(
    ("fake", "end"),
    [
        (Fake(refuse_every=1), "refused 429 overload.queue"),
        (Fake(fail_every=1), "failed poisoned"),
        (Fake(cut_every=1), CUT),
    ],
)
def test_other_ends(fake: Fake, end: str) -> None:
    assert ask(fake).end == end


@pytest.mark.parametrize("events", [0, 1, 2])
def test_leaving(events: int) -> None:
    answer = ask(Fake(gap_s=0.01), leave_after=events)
    assert (answer.end, len(answer.events)) == (LEFT, events)


def test_a_server_that_is_silent() -> None:
    assert ask(Fake(gap_s=20.0), timeout_s=0.2).end == LATE


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = Endpoint("127.0.0.1", taken.getsockname()[1])
        answer = Answer("one", 0.0)
        asyncio.run(stream(endpoint, COMPLETIONS, BODY, answer, timeout_s=5.0))
        assert answer.end == UNREACHABLE
        with pytest.raises(TPError) as caught:
            asyncio.run(get_json(endpoint, "/v1/models", 5.0))
        assert caught.value.code == "bench.http"


def test_an_endpoint_of_a_url() -> None:
    assert Endpoint.of("http://127.0.0.1:80") == Endpoint("127.0.0.1", 80)
    assert Endpoint.of("http://[::1]:8000/", "k") == Endpoint("::1", 8000, "k")


@pytest.mark.parametrize(
    "url",
    ["", "localhost:80", "https://a:1", "http://a", "http://a:x", "http://a:1/v1", "http://b@a:1"],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        Endpoint.of(url)
