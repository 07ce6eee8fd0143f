"""The routes of whoever looks, over a fake: exact shapes, also while it loads or has failed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from coordinator.fake_ranks import ListOutbox
from coordinator.process_table import wait_until
from coordinator.serving.fake_served import FakeServed
from coordinator.serving.fake_steps import observed
from coordinator.serving.metrics import Metrics
from coordinator.serving.observe import observe_routes
from coordinator.serving.served import Phase
from coordinator.serving.steps import StepLog
from coordinator.submission import Submission
from program.plan import Sampling

KEYS = {
    *("model", "program", "world_size", "epoch", "phase", "failure", "uptime_s"),
    *("progress_age_s", "restarts", "limits", "pages_free", "slots", "ranks", "requests"),
    *("steps", "tokens_total"),
}
RANK_KEYS = {
    *("rank", "pid", "phase", "bytes_loaded", "bytes_due", "rss_bytes", "weights_bytes"),
    *("state_bytes", "last_seen_age_s", "doing"),
}


class Looking:
    """A served model, its log, and a client."""

    def __init__(self, served: FakeServed) -> None:
        self.served = served
        self.log = StepLog(time.monotonic)
        self.metrics = Metrics("0" * 64)
        app = Starlette(routes=list(observe_routes(served, self.log, self.metrics)))
        self.client = TestClient(app)

    def engine(self) -> Any:
        answer = self.client.get("/v1/engine")
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"
        return answer.json()


@pytest.fixture
def looking() -> Iterator[Looking]:
    with FakeServed() as served:
        yield Looking(served)


def test_an_idle_engine(looking: Looking) -> None:
    page = looking.engine()
    assert page.keys() == KEYS
    assert (page["model"], page["phase"], page["world_size"]) == ("fake-model", "serving", 2)
    assert (page["failure"], page["requests"], page["steps"]) == (None, [], [])
    assert (page["slots"], page["pages_free"]) == ([None] * 4, 256)
    for number, rank in enumerate(page["ranks"]):
        assert rank.keys() == RANK_KEYS
        assert (rank["rank"], rank["doing"]) == (number, "idle")


def test_requests_with_their_progress(looking: Looking) -> None:
    served = looking.served
    served.hold()
    for prompt in range(1, 7):
        served.submit(Submission((5,) * prompt, 9, Sampling()), ListOutbox())
    wait_until(
        lambda: looking.engine()["requests"] and served.engine.snapshot.scheduler.in_flight == 0
    )
    waiting = looking.engine()["requests"]
    assert {tuple(request) for request in waiting} == {
        ("id", "state", "prompt_tokens", "computed_tokens", "completion_tokens", "max_tokens")
    }
    last = waiting[-1]
    assert last["state"] == "waiting"
    assert (last["prompt_tokens"], last["computed_tokens"], last["max_tokens"]) == (6, 0, 9)
    served.ranks.step_s = 0.02
    served.release()

    def running() -> bool:
        found = [one for one in looking.engine()["requests"] if one["completion_tokens"] == 4]
        for one in found:
            assert one["computed_tokens"] == one["prompt_tokens"] + 3
            assert one["max_tokens"] == 9
        return bool(found)

    wait_until(running)
    wait_until(lambda: not looking.engine()["requests"])


def test_steps_and_one_of_them(looking: Looking) -> None:
    looking.log.began(2, lambda rank: ("compute", "wait")[rank])
    for number in range(70):
        looking.log.stepped(observed(number))
    page = looking.engine()
    assert [step["step"] for step in page["steps"]] == list(range(10, 70))
    assert page["tokens_total"] == 70
    assert [rank["doing"] for rank in page["ranks"]] == ["compute", "wait"]
    step = looking.client.get("/v1/engine/steps/33").json()
    assert (step["step"], len(step["frames"]), len(step["spans"])) == (33, 6, 13)


@pytest.mark.parametrize("step", ["70", "-1", "x", "07", "1e3", "9" * 5000, "٣"])
def test_steps_that_are_not_kept(looking: Looking, step: str) -> None:
    looking.log.stepped(observed(0))
    answer = looking.client.get(f"/v1/engine/steps/{step}")
    assert answer.status_code == 404
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("request.not_found", "step")


def test_while_it_loads(looking: Looking) -> None:
    looking.served.phase = Phase.LOADING
    page = looking.engine()
    assert page.keys() == KEYS
    assert (page["phase"], page["pages_free"], page["requests"]) == ("loading", 256, [])
    for rank in page["ranks"]:
        assert (rank["phase"], rank["doing"]) == ("loading", "loading")
        assert (rank["bytes_loaded"], rank["bytes_due"]) == (50, 100)
        assert (rank["weights_bytes"], rank["state_bytes"]) == (None, None)
    assert looking.client.get("/metrics").status_code == 200


def test_after_a_failure(looking: Looking) -> None:
    looking.served.poison()
    wait_until(lambda: looking.served.phase is Phase.FAILED)
    page = looking.engine()
    assert page["phase"] == "failed"
    assert page["failure"] == {
        "code": "protocol.closed",
        "message": "the stream ended",
        "errno": None,
        "errno_name": None,
        "rank": 1,
        "phase": "plan",
        "step": None,
    }
    assert [rank["doing"] for rank in page["ranks"]] == ["ready", "failed"]


def test_metrics_are_text_that_a_scraper_reads(looking: Looking) -> None:
    answer = looking.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "rankproof_steps_total" in answer.text
