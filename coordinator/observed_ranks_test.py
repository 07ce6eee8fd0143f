"""Observed ranks do what the ranks do, and tell of every step, also of one that fails."""

from __future__ import annotations

import pytest

from coordinator.engine import Engine
from coordinator.engine_inbox import Inbox
from coordinator.fake_ranks import LIMITS, FakeClock, FakeRanks, ListOutbox
from coordinator.observed_ranks import ObservedRanks
from coordinator.request import Outcome
from coordinator.scheduler import Scheduler
from coordinator.step_timing import IDLE, Doing, ObservedStep, StepTimer
from coordinator.submission import Submission
from errors import MisuseError, ProtocolError
from program.plan import Sampling, StepPlan
from wire.recorder import Recorder

GONE = ProtocolError("closed", "the stream ended", rank=1, phase="plan")


class Watching:
    """An engine over observed fake ranks, and what the observer is told."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ranks = FakeRanks(self.clock)
        self.steps: list[ObservedStep] = []
        self.doing: Doing = lambda rank: "nothing is known"
        self.inbox = Inbox(9, lambda: None)
        self.timer = StepTimer(self.clock)
        observed = ObservedRanks(self.ranks, 2, self.timer, Recorder(keep_bytes=False), self)
        self.observed = observed
        scheduler = Scheduler(LIMITS, step_tokens=4, waiting_max=9)
        self.engine = Engine(observed, scheduler, self.inbox, heartbeat_s=60.0, clock=self.clock)

    def began(self, world_size: int, doing: Doing) -> None:
        assert world_size == 2
        self.doing = doing

    def stepped(self, step: ObservedStep) -> None:
        self.steps.append(step)

    def submit(self, prompt: int, max_tokens: int) -> ListOutbox:
        outbox = ListOutbox()
        self.inbox.submit(Submission((1,) * prompt, max_tokens, Sampling()), outbox)
        return outbox


def test_every_step_is_told_with_what_its_rows_were_for() -> None:
    watching = Watching()

    def takes_time(plan: StepPlan) -> None:
        assert watching.doing(0) == "wait"
        watching.clock.now += 2.0

    watching.ranks.during = takes_time
    long, short = watching.submit(6, 2), watching.submit(1, 3)
    while watching.engine.turn():
        pass
    assert [step.plan for step in watching.steps] == watching.ranks.plans
    assert [step.plan.step for step in watching.steps] == list(range(len(watching.steps)))
    assert {step.duration for step in watching.steps} == {2.0}
    assert {step.failure for step in watching.steps} == {None}
    for step in watching.steps:
        assert step.prefill_tokens + step.decode_rows == step.plan.token_count
    assert sum(step.prefill_tokens for step in watching.steps) == 6 + 1
    assert sum(step.decode_rows for step in watching.steps) == 1 + 2
    assert [len(long.token_ids), len(short.token_ids)] == [2, 3]
    assert watching.doing(0) == IDLE


def test_a_step_is_told_while_the_next_one_runs_and_before_its_tokens() -> None:
    watching = Watching()
    seen: list[int] = []

    class Looking(ListOutbox):
        def flush(self) -> None:
            seen.append(len(watching.steps))

    outbox = Looking()
    watching.inbox.submit(Submission((1,), 2, Sampling()), outbox)
    watching.engine.turn()
    assert (len(outbox.token_ids), watching.steps) == (1, [])
    watching.engine.turn()
    assert seen == [1]
    watching.observed.wait(200.0)
    assert len(watching.steps) == 2


def test_no_step_is_untold_once_nothing_is_left() -> None:
    watching = Watching()
    watching.submit(1, 2)
    while not watching.engine.snapshot.steps or watching.engine.snapshot.scheduler.states:
        watching.engine.turn()
    assert len(watching.steps) == len(watching.ranks.plans) == 3


def test_a_failure_between_steps_is_told_after_the_last_step() -> None:
    watching = Watching()
    watching.submit(1, 2)
    watching.engine.turn()
    watching.observed.retire(GONE)
    assert len(watching.steps) == 1


def test_a_failed_step_is_told_and_the_failure_stays_what_it_is() -> None:
    watching = Watching()
    watching.ranks.step_failure = GONE
    outbox = watching.submit(2, 2)
    watching.engine.turn()
    (step,) = watching.steps
    assert step.failure is GONE
    assert watching.engine.failure is not None
    assert watching.engine.failure.cause is GONE
    assert [end.outcome for end in outbox.ends] == [Outcome.FAILED]
    assert watching.ranks.retired == [GONE]


def test_a_mistake_of_ours_is_neither_a_failure_of_a_rank_nor_a_complete_step() -> None:
    watching = Watching()

    def breaks(plan: StepPlan) -> None:
        raise MisuseError("ours")

    watching.ranks.during = breaks
    watching.submit(2, 2)
    with pytest.raises(MisuseError):
        watching.engine.turn()
    assert not watching.steps


def test_everything_else_is_the_ranks_own() -> None:
    watching = Watching()
    assert watching.observed.status() == watching.ranks.status()
    watching.observed.wait(200.0)
    assert watching.clock.now == 200.0
    assert watching.observed.retire(GONE) is GONE
