"""The scheduler, one situation at a time; coordinator/scheduler_walk_test.py mixes them."""

from __future__ import annotations

from operator import attrgetter

import pytest

from coordinator.request import Finished, Outcome, RequestEvent, RequestState, Token, Update
from coordinator.scheduler import CLIENT_EVENTS, Scheduler
from coordinator.step_result import StepResult
from coordinator.submission import Submission
from errors import (
    CapacityError,
    ConfigError,
    ContractError,
    DeadlineError,
    MisuseError,
    OverloadError,
    PoisonedError,
    ProtocolError,
)
from program.artifacts import SampledToken, TokenLogprob
from program.plan import PAYLOAD_BYTES_MAX as PLAN_PAYLOAD_BYTES_MAX
from program.plan import PlanLimits, Release, Sampling, StepPlan
from wire.limits import METADATA_BYTES_MAX, PAYLOAD_BYTES_MAX

LIMITS = PlanLimits(
    vocab_size=100,
    context_tokens=64,
    slots=2,
    pages=8,
    page_tokens=4,
    tokens_per_step=32,
)
CAUSE = DeadlineError("receive", "rank 1 was silent", rank=1, phase="layers.0.mlp")


def scheduler_of(step_tokens: int = 16, waiting_max: int = 3) -> Scheduler:
    return Scheduler(LIMITS, step_tokens=step_tokens, waiting_max=waiting_max)


def submission(
    prompt: int = 3, max_tokens: int = 2, *, stop: tuple[int, ...] = (), logprobs: int | None = None
) -> Submission:
    return Submission((1,) * prompt, max_tokens, Sampling(), frozenset(stop), logprobs)


def planned(scheduler: Scheduler) -> StepPlan:
    plan = scheduler.plan()
    assert plan is not None
    return plan


def result_of(plan: StepPlan, token_id: int = 50) -> StepResult:
    artifacts = tuple(
        SampledToken(row.request_id, row.start_position + len(row.token_ids), token_id)
        for row in plan.rows
        if row.artifact is not None
    )
    return StepResult(plan.step, artifacts)


def step(scheduler: Scheduler, token_id: int = 50) -> tuple[Update, ...]:
    return scheduler.commit(result_of(planned(scheduler), token_id))


def ends(updates: tuple[Update, ...]) -> list[tuple[int, Outcome, int]]:
    return [
        (u.request_id, u.outcome, u.completion_tokens) for u in updates if isinstance(u, Finished)
    ]


def tokens(updates: tuple[Update, ...]) -> list[tuple[int, int, int]]:
    return [(u.request_id, u.index, u.token_id) for u in updates if isinstance(u, Token)]


def test_the_limits_restated_in_the_program_are_those_of_the_wire() -> None:
    assert PLAN_PAYLOAD_BYTES_MAX == PAYLOAD_BYTES_MAX
    assert METADATA_BYTES_MAX == 65_536


def test_a_request_from_start_to_end() -> None:
    scheduler = scheduler_of()
    assert scheduler.submit(0, submission(prompt=3, max_tokens=2)) == ()
    assert tokens(step(scheduler, 50)) == [(0, 0, 50)]
    last = step(scheduler, 51)
    assert (tokens(last), ends(last)) == ([(0, 1, 51)], [])
    plan = planned(scheduler)
    assert (plan.releases, plan.rows) == ((Release(0, 0, 1),), ())
    (end,) = scheduler.commit(result_of(plan))
    assert end == Finished(0, Outcome.LENGTH, 2, 3, 2)
    assert scheduler.idle
    assert scheduler.plan() is None
    assert scheduler.table.free_pages == LIMITS.pages


def test_a_request_that_ends_with_its_prompt() -> None:
    """max_tokens 1 and a stop token at once: the end is decided in the prefill's own step."""
    for stop, outcome in (((), Outcome.LENGTH), ((50,), Outcome.STOP)):
        scheduler = scheduler_of()
        scheduler.submit(0, submission(max_tokens=1, stop=stop))
        scheduler.submit(1, submission(max_tokens=5))
        assert tokens(step(scheduler)) == [(0, 0, 50), (1, 0, 50)]
        plan = planned(scheduler)
        assert [r.request_id for r in plan.releases] == [0]
        assert [(row.request_id, row.slot) for row in plan.rows] == [(1, 0)]
        assert ends(scheduler.commit(result_of(plan))) == [(0, outcome, 1)]


def test_a_stop_token_ends_the_answer_early_and_is_reported() -> None:
    scheduler = scheduler_of()
    scheduler.submit(0, submission(max_tokens=5, stop=(51,)))
    step(scheduler, 50)
    assert tokens(step(scheduler, 51)) == [(0, 1, 51)]
    assert ends(step(scheduler)) == [(0, Outcome.STOP, 2)]


def test_log_probabilities_reach_the_client() -> None:
    scheduler = scheduler_of()
    scheduler.submit(0, submission(logprobs=1))
    plan = planned(scheduler)
    top = (TokenLogprob(50, -0.5),)
    (token,) = scheduler.commit(StepResult(0, (SampledToken(0, 3, 50, -0.5, top),)))
    assert token == Token(0, 0, 0, 50, -0.5, top)
    assert plan.step == 0


def test_a_long_prompt_advances_by_chunks_while_others_decode() -> None:
    scheduler = scheduler_of(step_tokens=5)
    scheduler.submit(0, submission(prompt=2, max_tokens=8))
    scheduler.submit(1, submission(prompt=15, max_tokens=2))
    shares: list[dict[int, tuple[int, int]]] = []
    while len(shares) < 5:
        plan = planned(scheduler)
        shares.append({r.request_id: (r.start_position, len(r.token_ids)) for r in plan.rows})
        scheduler.commit(result_of(plan))
    assert shares == [
        {0: (0, 2), 1: (0, 3)},
        {0: (2, 1), 1: (3, 4)},
        {0: (3, 1), 1: (7, 4)},
        {0: (4, 1), 1: (11, 4)},
        {0: (5, 1), 1: (15, 1)},
    ]


EVENTS = [
    (RequestEvent.CANCEL, Outcome.CANCELLED),
    (RequestEvent.DISCONNECT, Outcome.DISCONNECTED),
    (RequestEvent.DROP, Outcome.DROPPED),
]


@pytest.mark.parametrize(("event", "outcome"), EVENTS)
def test_an_end_in_the_queue_leaves_no_trace(event: RequestEvent, outcome: Outcome) -> None:
    scheduler = scheduler_of()
    scheduler.submit(0, submission())
    assert scheduler.end(0, event) == (Finished(0, outcome, None, 3, 0),)
    assert scheduler.plan() is None
    assert scheduler.idle


@pytest.mark.parametrize(("event", "outcome"), [*EVENTS, (RequestEvent.STOP, Outcome.STOP)])
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_an_end_while_running_releases_in_the_next_plan(
    event: RequestEvent, outcome: Outcome, steps: int
) -> None:
    """In the middle of the prompt (one step) and while decoding."""
    scheduler = scheduler_of(step_tokens=4)
    scheduler.submit(0, submission(prompt=7, max_tokens=9))
    for _ in range(steps):
        step(scheduler)
    assert scheduler.end(0, event) == ()
    plan = planned(scheduler)
    assert ([r.request_id for r in plan.releases], plan.rows) == ([0], ())
    assert ends(scheduler.commit(result_of(plan))) == [(0, outcome, max(0, steps - 1))]
    assert scheduler.table.free_pages == LIMITS.pages


@pytest.mark.parametrize(("event", "outcome"), EVENTS)
def test_an_end_during_a_step_drops_its_token(event: RequestEvent, outcome: Outcome) -> None:
    scheduler = scheduler_of()
    scheduler.submit(0, submission(max_tokens=1))
    scheduler.submit(1, submission(max_tokens=2))
    plan = planned(scheduler)
    assert scheduler.end(0, event) == ()
    assert tokens(scheduler.commit(result_of(plan))) == [(1, 0, 50)]
    assert ends(step(scheduler)) == [(0, outcome, 0)]


@pytest.mark.parametrize("event", sorted(CLIENT_EVENTS, key=attrgetter("value")))
def test_an_end_after_the_answer_changes_nothing(event: RequestEvent) -> None:
    scheduler = scheduler_of()
    scheduler.submit(0, submission(max_tokens=1))
    step(scheduler)
    assert scheduler.end(0, event) == ()
    plan = planned(scheduler)
    assert scheduler.end(0, event) == ()
    assert ends(scheduler.commit(result_of(plan))) == [(0, Outcome.LENGTH, 1)]
    assert scheduler.end(0, event) == ()


def test_an_end_of_an_unknown_request_changes_nothing() -> None:
    assert scheduler_of().end(7, RequestEvent.CANCEL) == ()


def test_a_slot_and_pages_change_owner_within_one_plan() -> None:
    scheduler = scheduler_of()
    for request_id in range(3):
        scheduler.submit(request_id, submission(prompt=12, max_tokens=5))
    step(scheduler)
    step(scheduler)
    assert scheduler.snapshot().waiting == (2,)
    scheduler.end(0, RequestEvent.DISCONNECT)
    plan = planned(scheduler)
    assert [(r.request_id, r.slot) for r in plan.releases] == [(0, 0)]
    assert [(a.request_id, a.slot, a.generation) for a in plan.admissions] == [(2, 0, 3)]
    assert plan.admissions[0].pages == (0, 1, 2, 3)
    scheduler.commit(result_of(plan))


def test_impossible_is_refused_at_once_and_the_largest_possible_is_served() -> None:
    scheduler = scheduler_of()
    (end,) = scheduler.submit(0, submission(prompt=30, max_tokens=4))
    assert isinstance(end, Finished)
    assert (end.outcome, type(end.error)) == (Outcome.REJECTED, CapacityError)
    assert scheduler.submit(1, submission(prompt=30, max_tokens=3)) == ()
    while not scheduler.idle:
        updates = step(scheduler)
    assert ends(updates) == [(1, Outcome.LENGTH, 3)]


def test_a_full_queue_refuses_and_serves_again_after_the_pressure() -> None:
    scheduler = scheduler_of(waiting_max=2)
    for request_id in (0, 1):
        assert scheduler.submit(request_id, submission()) == ()
    (end,) = scheduler.submit(2, submission())
    assert isinstance(end, Finished)
    assert (end.outcome, type(end.error)) == (Outcome.REJECTED, OverloadError)
    step(scheduler)
    assert scheduler.submit(3, submission()) == ()
    finished = []
    while not scheduler.idle:
        finished += ends(step(scheduler))
    assert finished == [(i, Outcome.LENGTH, 2) for i in (0, 1, 3)]


def test_poison_ends_every_live_request_once() -> None:
    scheduler = scheduler_of()
    scheduler.submit(0, submission(max_tokens=1))
    scheduler.submit(1, submission(max_tokens=5))
    step(scheduler)
    scheduler.submit(2, submission())
    plan = planned(scheduler)
    updates = scheduler.poison(CAUSE)
    assert [(u.request_id, u.outcome, u.error) for u in updates if isinstance(u, Finished)] == [
        (i, Outcome.FAILED, CAUSE) for i in range(3)
    ]
    assert scheduler.idle
    assert scheduler.poison(ProtocolError("closed", "later")) == ()
    assert scheduler.snapshot().in_flight is None
    with pytest.raises(MisuseError):
        scheduler.commit(result_of(plan))


def test_after_poison_nothing_runs_and_the_first_cause_is_named() -> None:
    scheduler = scheduler_of()
    scheduler.poison(CAUSE)
    scheduler.poison(ProtocolError("closed", "later"))
    (end,) = scheduler.submit(0, submission())
    assert isinstance(end, Finished)
    assert end.outcome is Outcome.FAILED
    assert isinstance(end.error, PoisonedError)
    assert end.error.cause is CAUSE
    with pytest.raises(PoisonedError):
        scheduler.plan()
    with pytest.raises(MisuseError):
        scheduler.commit(StepResult(0, ()))


def test_a_wrong_result_changes_nothing() -> None:
    scheduler = scheduler_of()
    scheduler.submit(0, submission())
    plan = planned(scheduler)
    before = scheduler.snapshot()
    with pytest.raises(ContractError) as caught:
        scheduler.commit(StepResult(plan.step, (SampledToken(0, 4, 50),)))
    assert caught.value.code == "contract.metadata"
    assert scheduler.snapshot() == before
    assert tokens(scheduler.commit(result_of(plan))) == [(0, 0, 50)]


def test_the_snapshot_shows_what_exists() -> None:
    scheduler = scheduler_of()
    for request_id in range(3):
        scheduler.submit(request_id, submission(prompt=12, max_tokens=5))
    step(scheduler)
    scheduler.end(0, RequestEvent.CANCEL)
    plan = planned(scheduler)
    snapshot = scheduler.snapshot()
    assert snapshot.in_flight == plan.step == 1
    assert snapshot.states == (
        (0, RequestState.RELEASING),
        (1, RequestState.RUNNING),
        (2, RequestState.RUNNING),
    )
    assert [r.request_id for r in snapshot.table.residents] == [0, 1]


@pytest.mark.parametrize(("step_tokens", "waiting_max"), [(0, 1), (33, 1), (1, 0)])
def test_settings_outside_the_limits_are_refused(step_tokens: int, waiting_max: int) -> None:
    with pytest.raises(ConfigError):
        Scheduler(LIMITS, step_tokens=step_tokens, waiting_max=waiting_max)


def test_our_own_mistakes_crash() -> None:
    scheduler = scheduler_of()
    scheduler.submit(5, submission())
    with pytest.raises(MisuseError):
        scheduler.submit(5, submission())
    with pytest.raises(MisuseError):
        scheduler.end(5, RequestEvent.ADVANCE)
    with pytest.raises(MisuseError):
        scheduler.commit(StepResult(0, ()))
    scheduler.plan()
    with pytest.raises(MisuseError):
        scheduler.plan()
