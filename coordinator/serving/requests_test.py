"""The watch over requests that wait: when they left the queue, when they waited too long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from coordinator.request import RequestEvent
from coordinator.serving.api_client import Observed
from coordinator.serving.api_server import TINY
from coordinator.serving.bridge import Bridge
from coordinator.serving.choice import Choice
from coordinator.serving.fake_served import EOS, FakeServed, counts
from coordinator.serving.generation import Generation
from coordinator.serving.job import Job, Named
from coordinator.serving.requests import LOOK_S, LiveRequests
from coordinator.serving.text import ModelText
from coordinator.submission import Submission
from program.plan import Sampling

TEXT = ModelText.load(TINY)
NOTHING_AFTER_S = 20.0


class Watched:
    """Jobs over a service, and the watch over them."""

    def __init__(self, served: FakeServed, queue_s: float | None) -> None:
        self.served = served
        self.observer = Observed()
        self.requests = LiveRequests(served, queue_s)
        self._bridge = Bridge(asyncio.get_running_loop(), served.clock)
        self._next = 0

    def submitted(self, max_tokens: int = 900) -> Job:
        submission = Submission((1,), max_tokens, Sampling(), frozenset({EOS}))
        now = self.served.clock()
        choice = Choice(0, submission, Generation(TEXT, submission), now)
        named = Named(f"cmpl-{self._next}", "/v1/completions", 0, False)
        self._next += 1
        job = Job(named, [choice], self.served, self._bridge, self.observer, self.requests.remove)
        job.submit()
        self.requests.add(job)
        return job


def run(scenario: Callable[[Watched], Awaitable[None]], queue_s: float | None = None) -> FakeServed:
    async def bounded(served: FakeServed) -> None:
        async with asyncio.timeout(NOTHING_AFTER_S):
            await scenario(Watched(served, queue_s))

    with FakeServed(counts, step_s=0.005) as served:
        asyncio.run(bounded(served))
        return served


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_the_watch_rests_when_nothing_waits() -> None:
    async def scenario(watched: Watched) -> None:
        job = watched.submitted()
        assert not watched.requests.resting
        await until(lambda: watched.requests.resting)
        assert job.choices[0].admitted is not None
        assert len(watched.observer.queues) == 1
        assert watched.requests.find("cmpl-0") is job
        job.leave(RequestEvent.CANCEL)
        await until(lambda: watched.requests.find("cmpl-0") is None)

    run(scenario)


def test_the_queue_is_seen_to_hold_a_request() -> None:
    async def scenario(watched: Watched) -> None:
        running = [watched.submitted() for _ in range(4)]
        waiting = watched.submitted()
        await asyncio.sleep(5 * LOOK_S)
        (listed,) = watched.requests.listing()[4:]
        assert listed == watched.requests.shown(waiting)
        assert waiting.choices[0].admitted is None
        assert waiting.choices[0].seen_waiting > waiting.choices[0].arrived
        running[0].leave(RequestEvent.CANCEL)
        await until(lambda: waiting.choices[0].admitted is not None)
        for job in (*running, waiting):
            job.leave(RequestEvent.CANCEL)
        await until(lambda: watched.requests.listing() == [])

    run(scenario)


def test_a_request_that_waits_too_long_is_cancelled_once() -> None:
    async def scenario(watched: Watched) -> None:
        running = [watched.submitted() for _ in range(4)]
        late = watched.submitted()
        await late.done
        assert late.error is not None
        assert late.error.code == "overload.queue_time"
        await until(lambda: watched.requests.find(late.named.id) is None)
        assert all(not job.done.done() for job in running)
        for job in running:
            job.leave(RequestEvent.CANCEL)
        await until(lambda: watched.requests.listing() == [])

    served = run(scenario, queue_s=0.1)
    assert served.ended.count((4, RequestEvent.CANCEL)) == 1


def test_a_request_the_engine_has_not_seen_waits_too() -> None:
    async def scenario(watched: Watched) -> None:
        watched.served.hold()
        first = watched.submitted()
        await until(watched.served.ranks.held.is_set)
        late = watched.submitted()
        await late.done
        assert late.error is not None
        assert first.error is None
        watched.served.release()
        first.leave(RequestEvent.CANCEL)
        await until(lambda: watched.requests.listing() == [])

    run(scenario, queue_s=0.1)
