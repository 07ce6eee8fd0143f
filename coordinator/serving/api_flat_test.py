"""Nothing is left of a request once it has ended, however it did."""

from __future__ import annotations

import gc
import threading
from pathlib import Path

import httpx2
import openai
import pytest

from coordinator.serving.api_client import (
    MODEL,
    PATHS,
    body,
    endless,
    endless_streams,
    sent,
    service,
    until,
)
from coordinator.serving.api_server import ApiServer
from coordinator.serving.fake_served import FakeServed
from coordinator.serving.generation import Generation
from coordinator.serving.job import Job
from coordinator.serving.stream import EventStream


def kept() -> int:
    """Objects of requests."""
    gc.collect()
    return sum(type(one) in (Job, Generation, EventStream) for one in gc.get_objects())


def mixed(server: ApiServer, client: openai.OpenAI, served: FakeServed) -> None:
    """A request of every kind: whole, streamed, stopped, refused, left and cancelled."""
    for path in PATHS:
        for stream in (False, True):
            told = body(path, stream=stream, max_tokens=4, stop="zzz", timings=True)
            assert httpx2.post(server.url + path, json=told).status_code == 200
            assert httpx2.post(server.url + path, json=told | {"n": 2}).status_code == 400
            with sent(server, path, endless(path, stream=stream)):
                until(lambda: bool(served.engine.snapshot.scheduler.states))
            until(lambda: served.idle)
    (one,) = endless_streams(client, 1)
    (live,) = httpx2.get(server.url + "/v1/requests").json()["data"]
    httpx2.delete(f"{server.url}/v1/requests/{live['id']}")
    with pytest.raises(openai.APIError):
        list(one)
    until(lambda: served.idle)


@pytest.mark.parametrize("rounds", [2, pytest.param(5, marks=pytest.mark.exhaustive)])
def test_objects_descriptors_and_threads(rounds: int) -> None:
    with service() as (served, server, client):
        client.completions.create(model=MODEL, prompt="x", max_tokens=1)
        mixed(server, client, served)
        until(lambda: kept() == 0)
        threads, descriptors = threading.active_count(), _descriptors()
        for _ in range(rounds):
            mixed(server, client, served)
        until(lambda: kept() == 0)
        # Of the pool for long texts and templates, which starts a thread when none is idle yet.
        assert threading.active_count() <= threads + 2
        until(lambda: _descriptors() <= descriptors)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
