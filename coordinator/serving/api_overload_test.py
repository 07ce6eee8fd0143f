"""More than the service takes: a full queue, a queue that takes too long, a service that is not up.

Each is followed by a clean request.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import product

import httpx2
import openai
import pytest

from coordinator.request import RequestEvent
from coordinator.serving.api_client import (
    MODEL,
    PATHS,
    TEXT,
    Asking,
    Observed,
    body,
    endless_streams,
    error_of,
    service,
    until,
)
from coordinator.serving.api_options import ApiOptions
from coordinator.serving.served import Phase
from tools.python.tiers import mostly_exhaustive


def clean_request(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="x", max_tokens=2)
    assert answer.choices[0].finish_reason == "length"


@pytest.mark.parametrize(
    ("path", "stream"),
    mostly_exhaustive(product(PATHS, [False, True]), lambda case: case[0] == PATHS[case[1]]),
)
def test_a_full_queue(path: str, stream: bool) -> None:
    observer = Observed()
    with service(observer=observer, waiting_max=1) as (served, server, client):
        streams = endless_streams(client, 4)
        held = Asking(server, path, body(path, max_tokens=2))
        until(lambda: len(served.engine.snapshot.scheduler.waiting) == 1)
        answer = httpx2.post(server.url + path, json=body(path, stream=stream))
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")
        error = error_of(answer)
        assert (error["code"], error["type"]) == ("overload.queue", "rate_limit_error")
        for one in streams:
            one.close()
        assert held.answer().status_code == 200
        until(lambda: served.idle)
        clean_request(client)
    assert observer.ends.count(("rejected", "overload.queue")) == 1


def test_a_batch_is_taken_as_a_whole_or_not_at_all() -> None:
    with service(waiting_max=3) as (served, _, client):
        streams = endless_streams(client, 4)
        with pytest.raises(openai.RateLimitError):
            client.completions.create(model=MODEL, prompt=["a", "b", "c", "d", "e"], max_tokens=900)
        until(lambda: len(served.engine.snapshot.scheduler.states) == 4)
        for one in streams:
            one.close()
        until(lambda: served.idle)
        clean_request(client)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("phase", "code"),
    mostly_exhaustive(
        [
            (Phase.STARTING, "overload.loading"),
            (Phase.LOADING, "overload.loading"),
            (Phase.RESTARTING, "overload.loading"),
            (Phase.STOPPING, "overload.stopping"),
        ],
        lambda case: case[0] in (Phase.LOADING, Phase.STOPPING),
    ),
)
def test_a_service_that_takes_nothing(phase: Phase, code: str, stream: bool) -> None:
    observer = Observed()
    with service(observer=observer) as (served, server, client):
        served.phase = phase
        for path in PATHS:
            answer = httpx2.post(server.url + path, json=body(path, stream=stream))
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert error_of(answer)["code"] == code
        assert client.models.list().data[0].id == MODEL
        served.phase = Phase.SERVING
        clean_request(client)
    assert observer.ends == [("refused", code)] * 2 + [("length", None)]


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_in_the_queue(stream: bool) -> None:
    observer = Observed()
    with service(ApiOptions(queue_ms=100), observer) as (served, server, client):
        streams = endless_streams(client, 4)
        answer = Asking(server, PATHS[0], body(PATHS[0], stream=stream)).answer()
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert error_of(answer)["code"] == "overload.queue_time"
        assert (4, RequestEvent.CANCEL) in served.ended
        until(lambda: len(served.engine.snapshot.scheduler.states) == 4)
        for one in streams:
            one.close()
        until(lambda: served.idle)
        clean_request(client)
    assert ("cancelled", "overload.queue_time") in observer.ends
    # The four that ran, and the clean one; the late one never left the queue.
    assert len(observer.queues) == 5


def test_no_queue_deadline_for_what_runs() -> None:
    with service(ApiOptions(queue_ms=1)) as (_, _, client):
        answer = client.completions.create(model=MODEL, prompt="x", max_tokens=60)
        assert answer.choices[0].finish_reason == "length"


@pytest.mark.exhaustive
def test_a_hundred_at_once_with_early_stops() -> None:
    """Huge lengths, and a stop string in the tenth token; every one is answered in full."""
    expected = TEXT.decode([1 + (1 + count) % 94 for count in range(1, 20)])
    stop = expected[9:11]
    with service(waiting_max=128) as (served, _, client):
        served.ranks.step_s = 0.0

        def ask(number: int) -> str:
            if number % 2:
                chunks = client.completions.create(
                    model=MODEL, prompt=[1], max_tokens=900, stop=stop, stream=True
                )
                return "".join(chunk.choices[0].text for chunk in chunks)
            answer = client.completions.create(model=MODEL, prompt=[1], max_tokens=900, stop=stop)
            return answer.choices[0].text

        with ThreadPoolExecutor(100) as pool:
            assert list(pool.map(ask, range(100))) == [expected[:9]] * 100
        until(lambda: served.idle)
        clean_request(client)
