"""The requests that live: what clients may see of them, and the watch over those that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from coordinator.request import RequestState
from coordinator.serving.choice import Choice
from coordinator.serving.job import Job
from coordinator.serving.served import Served
from errors import TPError
from program.slots import Resident

# How often the queue is looked at while a request waits in it: times of admission are this exact.
LOOK_S: Final = 0.02


class LiveRequests:
    """All jobs that the engine has not ended. queue_s: how long a request may wait, if bounded."""

    def __init__(self, served: Served, queue_s: float | None) -> None:
        self._served = served
        self._queue_s = queue_s
        self._jobs: dict[str, Job] = {}
        self._watched: dict[str, Job] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, job: Job) -> None:
        """Submitted just now."""
        self._jobs[job.named.id] = job
        self._watched[job.named.id] = job
        self._schedule()

    def remove(self, job: Job) -> None:
        """Ended."""
        self._jobs.pop(job.named.id, None)
        self._watched.pop(job.named.id, None)

    @property
    def resting(self) -> bool:
        """Nothing is known to wait, so the queue is not looked at."""
        return self._timer is None

    def find(self, request_id: str) -> Job | None:
        return self._jobs.get(request_id)

    def listing(self) -> list[dict[str, object]]:
        """In order of arrival."""
        return self._shown(self._jobs.values())

    def shown(self, job: Job) -> dict[str, object]:
        """One entry of the listing."""
        (entry,) = self._shown([job])
        return entry

    def _shown(self, jobs: Iterable[Job]) -> list[dict[str, object]]:
        snapshot = self._served.status().snapshot
        states: Mapping[int, RequestState] = {}
        residents: Mapping[int, Resident] = {}
        if snapshot is not None:
            states = dict(snapshot.scheduler.states)
            held = snapshot.scheduler.table.residents
            residents = {resident.request_id: resident for resident in held}
        return [
            {
                "id": job.named.id,
                "object": "request",
                "endpoint": job.named.endpoint,
                "created": job.named.created,
                "stream": job.named.stream,
                "choices": [_shown_choice(choice, states, residents) for choice in job.choices],
            }
            for job in jobs
        ]

    def _schedule(self) -> None:
        if self._timer is None and self._watched:
            self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        self._timer = None
        snapshot = self._served.status().snapshot
        states = {} if snapshot is None else dict(snapshot.scheduler.states)
        waiting = set() if snapshot is None else set(snapshot.scheduler.waiting)
        now = self._served.clock()
        for job in list(self._watched.values()):
            for choice in job.choices:
                if choice.waiting and choice.request_id in states:
                    if choice.request_id in waiting:
                        choice.seen_waiting = now
                    else:
                        job.admitted(choice, now)
            self._judge(job, now)
        self._schedule()

    def _judge(self, job: Job, now: float) -> None:
        """The watch over a job ends when nothing of it waits, or it has waited too long."""
        late = [choice for choice in job.choices if choice.waiting and self._late(choice, now)]
        if late:
            rule = "the request waited too long for a free slot"
            job.fail(TPError("overload.queue_time", rule))
        if late or not any(choice.waiting for choice in job.choices):
            self._watched.pop(job.named.id, None)

    def _late(self, choice: Choice, now: float) -> bool:
        return self._queue_s is not None and now - choice.arrived > self._queue_s


def _shown_choice(
    choice: Choice, states: Mapping[int, RequestState], residents: Mapping[int, Resident]
) -> dict[str, object]:
    """state: the engine's; `waiting` too before it has looked, `finished` once it has ended.

    computed_tokens: positions whose state the ranks hold.
    """
    state, computed = "waiting" if choice.finished is None else "finished", 0
    if choice.request_id is not None:
        known, held = states.get(choice.request_id), residents.get(choice.request_id)
        state = state if known is None else known.value
        computed = 0 if held is None else held.computed_tokens
    return {
        "index": choice.index,
        "request_id": choice.request_id,
        "state": state,
        "prompt_tokens": choice.prompt_tokens,
        "computed_tokens": computed,
        "completion_tokens": choice.generation.completion_tokens,
        "max_tokens": choice.submission.max_tokens,
    }
