"""Ranks whose steps are observed: the engine's ranks, with a timer around every step.

It changes nothing of what a step does, and it is not there when nobody observes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from coordinator.engine import Ranks, RankStatus
from coordinator.step_timing import Notes, ObservedStep, StepObserver, StepTimer
from errors import PeerError
from program.plan import StepPlan
from program.step_report import StepReport
from wire.recorder import Recorder


class _Ended(NamedTuple):
    """A step of which the observer is to be told. first_frame, frames: as the recorder counted
    when it began, and when it ended."""

    plan: StepPlan
    start: float
    end: float
    notes: Notes
    first_frame: int
    frames: int
    failure: PeerError | None


class ObservedRanks:
    """Implements `engine.Ranks` over `ranks`.

    timer: attached to the links of these ranks. recorder: that of their frames.
    """

    def __init__(
        self,
        ranks: Ranks,
        world_size: int,
        timer: StepTimer,
        recorder: Recorder,
        observer: StepObserver,
    ) -> None:
        self._ranks = ranks
        self._world_size = world_size
        self._timer = timer
        self._recorder = recorder
        self._observer = observer
        # Of the resident requests: the length of the prompt tells prefill from decode.
        self._prompts: dict[int, int] = {}
        # The last step, of which the observer is told while the ranks compute the next one.
        self._untold: _Ended | None = None
        observer.began(world_size, timer.doing)

    def step(self, plan: StepPlan, meanwhile: Callable[[], None]) -> StepReport:
        """See `engine.Ranks.step`. The observer is told of a failed step too.

        Of a mistake of ours it is not: such a step neither has a result nor is a rank's failure.
        After a step with rows there is another one, or a failure: a request lives on until a later
        plan has released it. So the observer is told of such a step during the next one, before
        clients are told of it (`meanwhile`), and keeps no rank waiting.
        """

        def told_meanwhile() -> None:
            self._tell()
            meanwhile()

        first_frame = self._recorder.frames
        start = self._timer.begin()
        try:
            report = self._ranks.step(plan, told_meanwhile)
        except PeerError as cause:
            self._tell()
            self._note(plan, start, first_frame, cause)
            self._tell()
            raise
        self._note(plan, start, first_frame, None)
        if not plan.rows:
            self._tell()
        return report

    def wait(self, deadline: float) -> None:
        """See `engine.Ranks.wait`."""
        self._tell()
        self._ranks.wait(deadline)

    def retire(self, cause: PeerError) -> PeerError:
        """See `engine.Ranks.retire`."""
        self._tell()
        return self._ranks.retire(cause)

    def status(self) -> tuple[RankStatus, ...]:
        """See `engine.Ranks.status`."""
        return self._ranks.status()

    def _tell(self) -> None:
        ended, self._untold = self._untold, None
        if ended is not None:
            self._observer.stepped(self._observed(ended))

    def _note(
        self, plan: StepPlan, start: float, first_frame: int, failure: PeerError | None
    ) -> None:
        """No more than the next step would change."""
        end, notes = self._timer.end(), self._timer.notes.copy()
        frames = self._recorder.frames
        self._untold = _Ended(plan, start, end, notes, first_frame, frames, failure)

    def _observed(self, ended: _Ended) -> ObservedStep:
        """The step, with those of its frames that are still kept."""
        prefill_tokens, decode_rows = self._purposes(ended.plan)
        recorder = self._recorder
        first_frame = max(ended.first_frame, recorder.oldest)
        return ObservedStep(
            plan=ended.plan,
            world_size=self._world_size,
            start=ended.start,
            end=ended.end,
            notes=ended.notes,
            records=recorder.since(first_frame)[: max(0, ended.frames - first_frame)],
            first_frame=first_frame,
            oldest_frame=recorder.oldest,
            prefill_tokens=prefill_tokens,
            decode_rows=decode_rows,
            failure=ended.failure,
        )

    def _purposes(self, plan: StepPlan) -> tuple[int, int]:
        """Prompt tokens in the plan, and rows of one generated token."""
        prompts = self._prompts
        for release in plan.releases:
            prompts.pop(release.request_id, None)
        for admit in plan.admissions:
            prompts[admit.request_id] = admit.prompt_tokens
        prefill_tokens = decode_rows = 0
        for row in plan.rows:
            if row.start_position < prompts[row.request_id]:
                prefill_tokens += len(row.token_ids)
            else:
                decode_rows += 1
        return prefill_tokens, decode_rows
