"""A rank fails, the service ends, or we are wrong: every client is told, and told once."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx2
import openai
import pytest

from coordinator.request import Token
from coordinator.serving.api_client import (
    MODEL,
    PATHS,
    Asking,
    Observed,
    body,
    endless,
    endless_streams,
    error_of,
    service,
    until,
)
from coordinator.serving.generation import Delta, Generation


@pytest.mark.parametrize("path", PATHS)
def test_in_the_middle_of_a_stream(path: str) -> None:
    """An error event, nothing after it, and no [DONE]."""
    observer = Observed()
    with service(observer=observer) as (served, server, _), httpx2.Client() as http:
        with http.stream("POST", server.url + path, json=endless(path, stream=True)) as answer:
            assert answer.status_code == 200
            lines = answer.iter_lines()
            assert next(lines).startswith("data: ")
            served.poison()
            said = [line for line in lines if line]
        assert "[DONE]" not in "".join(said)
        error = json.loads(said[-1].removeprefix("data: "))["error"]
        assert (error["code"], error["rank"], error["phase"]) == ("protocol.closed", 1, "plan")
        assert error["type"] == "server_error"
        assert not any('"error"' in line for line in said[:-1])
    assert observer.ends == [("failed", "protocol.closed")]


def test_a_complete_stream_ends_with_done() -> None:
    """What the test above looks for is there when nothing fails."""
    with service() as (_, server, _):
        answer = httpx2.post(server.url + PATHS[0], json=body(PATHS[0], stream=True, max_tokens=2))
        assert answer.text.endswith("data: [DONE]\n\n")
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"


def test_the_client_library_sees_it() -> None:
    with service() as (served, _, client):
        (stream,) = endless_streams(client, 1)
        served.poison()
        with pytest.raises(openai.APIError) as failure:
            list(stream)
        assert failure.value.code == "protocol.closed"


@pytest.mark.parametrize("path", PATHS)
def test_a_whole_answer_and_ever_after(path: str) -> None:
    with service() as (served, server, _):
        asking = Asking(server, path, endless(path))
        until(lambda: len(served.ranks.plans) > 3)
        served.poison()
        answer = asking.answer()
        assert answer.status_code == 503
        assert (error_of(answer)["code"], error_of(answer)["rank"]) == ("protocol.closed", 1)
        for stream in (False, True):
            later = httpx2.post(server.url + path, json=body(path, stream=stream))
            assert later.status_code == 503
            assert (error_of(later)["code"], error_of(later)["rank"]) == ("group.poisoned", 1)


def test_before_the_first_token_it_is_the_status_of_a_stream() -> None:
    with service() as (served, server, _):
        served.hold()
        asking = Asking(server, PATHS[0], body(PATHS[0], stream=True))
        until(lambda: len(served.submitted) == 1)
        served.poison()
        assert asking.answer().status_code == 503


def test_a_success_that_was_not_published_yet_fails_too() -> None:
    """The last token was told, but not that the ranks let go of the request (plan.md L15)."""
    with service() as (served, server, _), httpx2.Client() as http:
        told = body(PATHS[0], stream=True, max_tokens=1)
        served.ranks.script = lambda tokens, prompt_tokens: _hold_after(served.hold, 5)
        with http.stream("POST", server.url + PATHS[0], json=told) as answer:
            lines = answer.iter_lines()
            assert '"text"' in next(lines)
            served.poison()
            rest = "".join(lines)
        assert "protocol.closed" in rest
        assert '"length"' not in rest
        assert "[DONE]" not in rest


def test_the_end_of_the_service_ends_what_is_left() -> None:
    with service() as (served, server, client):
        (stream,) = endless_streams(client, 1)
        asking = Asking(server, PATHS[0], endless())
        until(lambda: len(served.submitted) == 2)
        served.inbox.stop(served.clock())
        with pytest.raises(openai.APIError) as dropped:
            list(stream)
        assert dropped.value.code == "request.dropped"
        assert asking.answer().status_code == 503


@pytest.mark.parametrize("stream", [False, True])
def test_a_mistake_of_ours_does_not_reach_the_others(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    with service() as (served, server, client):
        (other,) = endless_streams(client, 1)
        feed = Generation.feed

        def broken(self: Generation, token: Token) -> Delta:
            if token.request_id == 1:
                raise ZeroDivisionError
            return feed(self, token)

        monkeypatch.setattr(Generation, "feed", broken)
        answer = httpx2.post(server.url + PATHS[0], json=endless(stream=stream))
        assert (answer.status_code, error_of(answer)["code"]) == (500, "internal.error")
        next(iter(other))
        other.close()
        until(lambda: served.idle)
        assert client.completions.create(model=MODEL, prompt="x", max_tokens=2).choices


def _hold_after(hold: Callable[[], None], token_id: int) -> int:
    hold()
    return token_id
