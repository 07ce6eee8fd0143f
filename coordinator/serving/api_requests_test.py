"""The requests that live, seen and cancelled; and what an observer is told."""

from __future__ import annotations

import httpx2
import openai
import pytest

from coordinator.serving.api_client import (
    ENDLESS_TOKENS,
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


def listed(url: str) -> list[dict[str, object]]:
    told = httpx2.get(url + "/v1/requests").json()
    assert told["object"] == "list"
    data = told["data"]
    assert isinstance(data, list)
    return data


def test_seen_and_cancelled() -> None:
    observer = Observed()
    with service(observer=observer) as (served, server, client):
        first, second = endless_streams(client, 2)
        one, other = listed(server.url)
        assert one["id"] == first.response.headers["x-request-id"]
        assert other["id"] == second.response.headers["x-request-id"]
        assert (one["endpoint"], one["stream"], one["object"]) == (PATHS[0], True, "request")
        path = f"{server.url}/v1/requests/{one['id']}"
        alone = httpx2.get(path).json()
        assert (alone["id"], alone["created"]) == (one["id"], one["created"])
        (choice,) = alone["choices"]
        assert (choice["index"], choice["request_id"], choice["state"]) == (0, 0, "running")
        assert (choice["prompt_tokens"], choice["max_tokens"]) == (1, ENDLESS_TOKENS)
        assert 1 <= choice["completion_tokens"] <= choice["computed_tokens"] + 1
        gone = httpx2.delete(path)
        assert gone.json() == {"id": one["id"], "object": "request", "cancelled": True}
        with pytest.raises(openai.APIError) as cancelled:
            list(first)
        assert cancelled.value.code == "request.cancelled"
        until(lambda: len(served.engine.snapshot.scheduler.states) == 1)
        until(lambda: len(listed(server.url)) == 1)
        for method in ("GET", "DELETE"):
            answer = httpx2.request(method, path)
            assert (answer.status_code, error_of(answer)["param"]) == (404, "id")
        second.close()
        until(lambda: served.idle)
        until(lambda: listed(server.url) == [])
    assert observer.ends == [
        ("cancelled", "request.cancelled"),
        ("disconnected", "request.cancelled"),
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_cancelled_in_the_queue(stream: bool) -> None:
    with service() as (served, server, client):
        streams = endless_streams(client, 4)
        asking = Asking(server, PATHS[1], body(PATHS[1], stream=stream))
        until(lambda: len(listed(server.url)) == 5)
        live = listed(server.url)[4]
        assert [choice["state"] for choice in _choices(live)] == ["waiting"]
        httpx2.delete(f"{server.url}/v1/requests/{live['id']}")
        answer = asking.answer()
        assert (answer.status_code, error_of(answer)["code"]) == (410, "request.cancelled")
        for one in streams:
            one.close()
        until(lambda: served.idle)


def test_a_whole_batch_that_is_cancelled() -> None:
    with service() as (served, server, client):
        asking = Asking(server, PATHS[0], endless() | {"prompt": ["a", "b", "c"]})
        until(lambda: len(served.ranks.plans) > 3)
        (live,) = listed(server.url)
        assert [choice["index"] for choice in _choices(live)] == [0, 1, 2]
        httpx2.delete(f"{server.url}/v1/requests/{live['id']}")
        answer = asking.answer()
        assert (answer.status_code, error_of(answer)["code"]) == (410, "request.cancelled")
        until(lambda: served.idle)
        assert client.completions.create(model=MODEL, prompt="x", max_tokens=2).choices


def test_what_an_observer_is_told() -> None:
    observer = Observed()
    with service(observer=observer) as (_, _, client):
        client.completions.create(model=MODEL, prompt=["x", "y"], max_tokens=5)
        with pytest.raises(openai.BadRequestError):
            client.completions.create(model=MODEL, prompt="", max_tokens=5)
    assert observer.ends == [("length", None), ("length", None), ("refused", "request.range")]
    assert (len(observer.queues), len(observer.firsts), len(observer.gaps)) == (2, 2, 8)
    assert min(observer.queues + observer.firsts + observer.gaps) >= 0


def _choices(live: dict[str, object]) -> list[dict[str, object]]:
    choices = live["choices"]
    assert isinstance(choices, list)
    return choices
