"""The last steps of the running group, for whoever looks: when, how long, who waited for whom.

The engine's thread adds; any thread reads. Steps are kept as they were observed, and everything
that is shown of them is worked out when somebody asks. Frames are those that the recorder still
has, so its bound on memory is this log's too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from threading import Lock
from typing import Final

from coordinator.serving.step_view import summary_json
from coordinator.step_timing import IDLE, Doing, ObservedStep

STEPS_MAX: Final = 512
# Of all steps that are kept: some tens of megabytes. Only large groups of ranks come near it.
NOTES_MAX: Final = 200_000


class StepLog:
    """Implements `StepObserver`. clock: that of the observed times; started_at: its first reading.

    sampled: tokens made in complete steps since the service started, over all groups.
    steps_max, notes_max: how many steps are kept, and how many notes of theirs; the newest always.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        steps_max: int = STEPS_MAX,
        notes_max: int = NOTES_MAX,
    ) -> None:
        self.started_at = clock()
        self.sampled = 0
        self._steps_max = steps_max
        self._notes_max = notes_max
        self._steps: deque[ObservedStep] = deque()
        self._notes = 0
        # Of how many of the newest steps some frames are kept.
        self._with_frames = 0
        self._doing: Doing = _idle
        # Of the steps shown last, so that whoever looks often costs little.
        self._summaries: dict[int, dict[str, object]] = {}
        self._lock = Lock()

    def began(self, world_size: int, doing: Doing) -> None:
        """A new group: its steps are numbered from 0 again, and the last group's are forgotten."""
        with self._lock:
            self._steps.clear()
            self._notes = self._with_frames = 0
            self._summaries = {}
            self._doing = doing

    def stepped(self, step: ObservedStep) -> None:
        """Keep it; of older steps, only the frames that the recorder still has."""
        with self._lock:
            steps = self._steps
            steps.append(step)
            self._notes += len(step.notes)
            while len(steps) > 1 and self._is_full():
                self._notes -= len(steps.popleft().notes)
            self._with_frames = min(self._with_frames + 1, len(steps))
            while self._with_frames > 1:
                at = len(steps) - self._with_frames
                if steps[at].first_frame >= step.oldest_frame:
                    break
                steps[at] = replace(steps[at], records=())
                self._with_frames -= 1
            if step.failure is None:
                self.sampled += sum(row.artifact is not None for row in step.plan.rows)

    def _is_full(self) -> bool:
        return len(self._steps) > self._steps_max or self._notes > self._notes_max

    def recent(self, count: int) -> tuple[ObservedStep, ...]:
        """The last steps of the running group, oldest first."""
        with self._lock:
            first = max(0, len(self._steps) - count)
            return tuple(self._steps[at] for at in range(first, len(self._steps)))

    def summaries(self, count: int) -> list[dict[str, object]]:
        """`recent`, each as `step_view.summary_json` shows it."""
        known = self._summaries
        shown: dict[int, dict[str, object]] = {}
        for step in self.recent(count):
            number = step.plan.step
            shown[number] = known.get(number) or summary_json(step, self.started_at)
        with self._lock:
            # Unless a new group has begun meanwhile.
            if self._summaries is known:
                self._summaries = shown
        return list(shown.values())

    def find(self, number: int) -> ObservedStep | None:
        """The step of that number, if it is still kept."""
        with self._lock:
            if not self._steps:
                return None
            at = number - self._steps[0].plan.step
            return self._steps[at] if 0 <= at < len(self._steps) else None

    def doing(self, rank: int) -> str:
        """What a rank of the running group does right now (`step_timing.Doing`)."""
        return self._doing(rank)


def _idle(rank: int) -> str:
    return IDLE
