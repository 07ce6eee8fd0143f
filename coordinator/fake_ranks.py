"""Ranks for tests of the engine: a slot table takes the plans, tokens follow from positions."""

from __future__ import annotations

from collections.abc import Callable

from coordinator.engine import RankStatus
from coordinator.request import Finished, Token, Update
from errors import PeerError
from program.artifacts import SampledToken
from program.plan import PlanLimits, Sample, StepPlan
from program.plan_codec import plan_digest
from program.slots import SlotTable, apply
from program.step_report import StepReport

LIMITS = PlanLimits(
    vocab_size=50, context_tokens=64, slots=3, pages=12, page_tokens=4, tokens_per_step=32
)
NO_DIGEST = "0" * 64


class FakeClock:
    """Seconds that pass when somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class ListOutbox:
    """Keeps what it gets."""

    def __init__(self) -> None:
        self.updates: list[Update] = []

    def put(self, update: Update) -> None:
        self.updates.append(update)

    def flush(self) -> None:
        """Nobody waits."""

    @property
    def token_ids(self) -> list[int]:
        return [update.token_id for update in self.updates if isinstance(update, Token)]

    @property
    def ends(self) -> list[Finished]:
        return [update for update in self.updates if isinstance(update, Finished)]


class FakeRanks:
    """failure: raised by the step or the wait that comes next. during: called inside every step."""

    def __init__(self, clock: FakeClock, limits: PlanLimits = LIMITS) -> None:
        self.table = SlotTable.empty(limits)
        self.plans: list[StepPlan] = []
        self.waits: list[float] = []
        self.retired: list[PeerError] = []
        self.step_failure: PeerError | None = None
        self.wait_failure: PeerError | None = None
        self.during: Callable[[StepPlan], None] = lambda plan: None
        self._clock = clock

    def step(self, plan: StepPlan, meanwhile: Callable[[], None]) -> StepReport:
        self.plans.append(plan)
        meanwhile()
        self.during(plan)
        if self.step_failure is not None:
            raise self.step_failure
        self.table = apply(plan, self.table)
        artifacts = tuple(
            SampledToken(row.request_id, end, sampled(row.request_id, end))
            for row in plan.rows
            if isinstance(row.artifact, Sample)
            for end in [row.start_position + len(row.token_ids)]
        )
        return StepReport(plan_digest(plan), self.table.digest(), NO_DIGEST, artifacts)

    def wait(self, deadline: float) -> None:
        self.waits.append(deadline - self._clock.now)
        self._clock.now = deadline
        if self.wait_failure is not None:
            raise self.wait_failure

    def retire(self, cause: PeerError) -> PeerError:
        self.retired.append(cause)
        return cause

    def status(self) -> tuple[RankStatus, ...]:
        return (RankStatus(0, None, {}, self.table.digest(), NO_DIGEST),)


def sampled(request_id: int, position: int) -> int:
    """The token that stands at a position of a request."""
    return (request_id * 7 + position) % LIMITS.vocab_size
