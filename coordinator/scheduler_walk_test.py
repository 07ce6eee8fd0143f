"""10,000 random events over the scheduler; then the same walk must notice planted faults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

import coordinator.composer as composer_module
import coordinator.scheduler as scheduler_module
from coordinator.composer import Composed, Running, Waiting
from coordinator.request import Outcome, RequestEvent, RequestState, Update
from coordinator.scheduler import Scheduler
from coordinator.scheduler_walk import InvariantError, Walk, WalkSettings
from coordinator.step_result import StepResult
from errors import ContractError, MisuseError
from program.plan import Admit, PlanLimits, StepPlan
from program.slots import SlotTable, apply
from tools.python.tiers import mostly_exhaustive

WALKS = 20
EVENTS = 500
Compose = Callable[..., StepPlan | None]
_compose = composer_module.compose


def settings_of(seed: int) -> WalkSettings:
    """Small pools, so that pressure, reuse and compaction are everyday."""
    random = Random(seed ^ 0x5EED)
    slots = random.randint(1, 5)
    limits = PlanLimits(
        vocab_size=13,
        context_tokens=40,
        slots=slots,
        pages=random.randint(4, 14),
        page_tokens=random.choice([1, 3, 4, 8]),
        tokens_per_step=64,
    )
    budget = random.choice([1, 2, slots, slots + 1, 7, 64])
    return WalkSettings(limits, budget, waiting_max=random.randint(1, 6), ranks=2)


def walk_of(seed: int, scheduler_type: type[Scheduler] = Scheduler) -> Walk:
    settings = settings_of(seed)
    scheduler = scheduler_type(
        settings.limits, step_tokens=settings.step_tokens, waiting_max=settings.waiting_max
    )
    return Walk(seed, settings, scheduler)


@pytest.mark.parametrize("seed", mostly_exhaustive(range(WALKS), lambda seed: seed < 6))
def test_every_rule_holds_after_every_event(seed: int) -> None:
    walk = walk_of(seed)
    walk.run(EVENTS)
    walk.drain()


@pytest.mark.exhaustive
def test_the_walks_reach_every_outcome() -> None:
    """Otherwise the walk above would prove little."""
    reached: dict[Outcome, int] = {}
    steps = 0
    for seed in range(WALKS):
        walk = walk_of(seed)
        walk.run(EVENTS)
        walk.drain()
        steps += walk.steps
        for client in walk.clients:
            if client.finished is not None:
                outcome = client.finished.outcome
                reached[outcome] = reached.get(outcome, 0) + 1
    assert set(reached) == set(Outcome) - {Outcome.FAILED}
    assert all(count >= 50 for count in reached.values())
    assert steps > WALKS * EVENTS // 2


def test_the_same_seed_gives_the_same_walk() -> None:
    tables = []
    for _ in range(2):
        walk = walk_of(3)
        walk.run(EVENTS)
        tables.append([(c.request_id, c.seen, c.finished) for c in walk.clients])
    first, second = (repr([entry[:2] for entry in table]) for table in tables)
    assert first == second


def notices(scheduler_type: type[Scheduler] = Scheduler) -> bool:
    """Does any of the walks break a rule?"""
    for seed in range(WALKS):
        walk = walk_of(seed, scheduler_type)
        try:
            walk.run(EVENTS)
            walk.drain(2_000)
        except (InvariantError, MisuseError):
            return True
    return False


def compose(table: SlotTable, leaving: Any, waiting: Any, running: Any, n: int) -> Any:
    """The plan alone."""
    found = _compose(table, leaving, waiting, running, n)
    return None if found is None else found.plan


def with_table(fault: Compose) -> Callable[..., Composed | None]:
    """A composer of these plans. One that no table takes leaves the scheduler's as it was."""

    def faulty(table: SlotTable, *given: Any) -> Composed | None:
        plan = fault(table, *given)
        if plan is None:
            return None
        try:
            return Composed(plan, apply(plan, table))
        except ContractError:
            return Composed(plan, table)

    return faulty


def last_come_first(table: SlotTable, leaving: Any, waiting: Any, running: Any, n: int) -> Any:
    return compose(table, leaving, list(reversed(waiting)), running, n)


def overtaking(table: SlotTable, leaving: Any, waiting: Any, running: Any, n: int) -> Any:
    """Skips the head of the queue when a later request would fit."""
    plan = compose(table, leaving, waiting, running, n)
    if waiting and (plan is None or not plan.admissions):
        return compose(table, leaving, waiting[1:], running, n)
    return plan


def forgotten_release(table: SlotTable, leaving: Any, waiting: Any, running: Any, n: int) -> Any:
    return compose(table, frozenset(sorted(leaving)[1:]), waiting, running, n)


def over_budget(table: SlotTable, leaving: Any, waiting: Any, running: Any, n: int) -> Any:
    return compose(table, leaving, waiting, running, n + 1)


def lazy(table: SlotTable, leaving: Any, waiting: Any, running: Any, n: int) -> Any:
    return compose(table, leaving, waiting, running, max(1, n // 2))


def starving(
    table: SlotTable, leaving: Any, waiting: Sequence[Waiting], running: Sequence[Running], n: int
) -> Any:
    """Serves the newest first, so an old decode may wait for ever."""
    newest_first = [replace(r, turn=-r.request_id) for r in running]
    return compose(table, leaving, waiting, newest_first, n)


def shared_page(table: SlotTable, leaving: Any, waiting: Any, running: Any, n: int) -> Any:
    plan = compose(table, leaving, waiting, running, n)
    if plan is None or not plan.admissions or not table.residents:
        return plan
    first: Admit = plan.admissions[0]
    stolen = table.residents[0].pages[0]
    pages = tuple(sorted({stolen, *first.pages[1:]}))
    return replace(plan, admissions=(replace(first, pages=pages), *plan.admissions[1:]))


def undense(table: SlotTable, leaving: Any, waiting: Any, running: Any, n: int) -> Any:
    """Keeps a slot where it is instead of closing the hole."""
    plan = compose(table, leaving, waiting, running, n)
    if plan is None or not plan.moves:
        return plan
    origin = {move.request_id: move.from_slot for move in plan.moves}
    rows = [replace(row, slot=origin.get(row.request_id, row.slot)) for row in plan.rows]
    return replace(plan, moves=(), rows=tuple(sorted(rows, key=lambda row: row.slot)))


def lost_chunk(table: SlotTable, leaving: Any, waiting: Any, running: Any, n: int) -> Any:
    """A chunk that starts one token late: the tokens are right, the positions are not."""
    plan = compose(table, leaving, waiting, running, n)
    if plan is None or not plan.rows:
        return plan
    row = plan.rows[0]
    moved = replace(row, start_position=row.start_position + 1)
    return replace(plan, rows=(moved, *plan.rows[1:]))


@pytest.mark.parametrize(
    "fault",
    [
        last_come_first,
        overtaking,
        forgotten_release,
        over_budget,
        lazy,
        starving,
        shared_page,
        undense,
        lost_chunk,
    ],
)
def test_a_faulty_plan_is_noticed(fault: Compose, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "compose", with_table(fault))
    assert notices()


@pytest.mark.exhaustive
def test_newcomers_that_jump_the_line_for_tokens_are_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    newcomer = composer_module._newcomer
    monkeypatch.setattr(composer_module, "_newcomer", lambda request, _: newcomer(request, -1))
    assert notices()


def test_newcomers_behind_those_just_served_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def turn_of(step: int, *, served: bool) -> int:
        return step

    monkeypatch.setattr(composer_module, "turn_of", turn_of)
    monkeypatch.setattr(scheduler_module, "turn_of", turn_of)
    assert notices()


class DeafScheduler(Scheduler):
    """Loses the end of a running request."""

    def end(self, request_id: int, event: RequestEvent) -> tuple[Update, ...]:
        return super().end(request_id, event) if request_id in self.snapshot().waiting else ()


class HastyScheduler(Scheduler):
    """Publishes an end at the step that decided it."""

    def commit(self, result: StepResult) -> tuple[Update, ...]:
        updates = super().commit(result)
        for request in list(self._in_state(RequestState.RELEASING)):
            updates += self._finish(request, RequestEvent.RELEASED, step=result.step)
        return updates


class RepeatingScheduler(Scheduler):
    """Publishes every update twice."""

    def commit(self, result: StepResult) -> tuple[Update, ...]:
        return tuple(update for update in super().commit(result) for _ in range(2))


class TalkativeScheduler(Scheduler):
    """Publishes the token of a step whose client left while it ran."""

    def end(self, request_id: int, event: RequestEvent) -> tuple[Update, ...]:
        if self.snapshot().in_flight is not None and request_id not in self.snapshot().waiting:
            return ()
        return super().end(request_id, event)


@pytest.mark.parametrize(
    "scheduler_type", [DeafScheduler, HastyScheduler, RepeatingScheduler, TalkativeScheduler]
)
def test_a_faulty_scheduler_is_noticed(scheduler_type: type[Scheduler]) -> None:
    assert notices(scheduler_type)
