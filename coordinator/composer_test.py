"""One plan at a time: who enters, who moves, and how the tokens of a step are shared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from coordinator import composer
from coordinator.composer import Running, Waiting, turn_of
from coordinator.submission import Submission
from program.canonical import canonical_json
from program.plan import (
    INTEGER_MAX,
    LOGIT_BIAS_ENTRIES_MAX,
    PLAN_BYTES_MAX,
    SLOTS_MAX,
    Move,
    PlanLimits,
    Release,
    Sample,
    Sampling,
    StepPlan,
)
from program.plan_codec import encode_plan
from program.slots import Resident, SlotTable, apply

LIMITS = PlanLimits(
    vocab_size=1000,
    context_tokens=1024,
    slots=4,
    pages=20,
    page_tokens=8,
    tokens_per_step=256,
)
NOBODY: frozenset[int] = frozenset()


def waiting(request_id: int, prompt: int = 3, max_tokens: int = 1) -> Waiting:
    return Waiting(request_id, Submission((7,) * prompt, max_tokens, Sampling()))


def resident(
    request_id: int, computed: int, pages: tuple[int, ...], generation: int = 1
) -> Resident:
    return Resident(
        request_id=request_id,
        generation=generation,
        pages=pages,
        prompt_tokens=4,
        tokens_max=8 * len(pages),
        samples=True,
        page_runs=tuple((page, 1) for page in pages),
        computed_tokens=computed,
    )


def running(request_id: int, known: int, prompt: int = 4, turn: int = 0) -> Running:
    return Running(request_id, (5,) * known, prompt, None, turn)


def compose(
    table: SlotTable,
    leaving: frozenset[int],
    queue: Sequence[Waiting],
    residents: Sequence[Running],
    step_tokens: int,
) -> StepPlan | None:
    """The plan alone, once the table beside it is the one that whoever applies the plan gets."""
    found = composer.compose(table, leaving, queue, residents, step_tokens)
    if found is None:
        return None
    assert found.table == apply(found.plan, table)
    return found.plan


def table_of(*slots: Resident | None) -> SlotTable:
    padded = (*slots, *(None,) * (LIMITS.slots - len(slots)))
    return SlotTable(LIMITS, padded, admissions=len(slots), next_step=9)


def shares(plan: StepPlan | None) -> dict[int, int]:
    assert plan is not None
    return {row.request_id: len(row.token_ids) for row in plan.rows}


def test_nothing_to_do() -> None:
    assert compose(SlotTable.empty(LIMITS), NOBODY, [], [], 8) is None


def test_admission_takes_the_lowest_slot_and_the_lowest_pages() -> None:
    table = table_of(resident(1, 4, (0, 3)), None)
    plan = compose(table, NOBODY, [waiting(2, 17)], [running(1, 5)], 64)
    assert plan is not None
    (admit,) = plan.admissions
    assert (admit.slot, admit.generation, admit.pages) == (1, 3, (1, 2, 4))
    assert (admit.prompt_tokens, admit.tokens_max) == (17, 17)
    apply(plan, table)


def test_the_released_slot_and_pages_serve_in_the_same_plan() -> None:
    table = table_of(*(resident(i, 4, tuple(range(5 * i, 5 * i + 5))) for i in range(4)))
    plan = compose(table, frozenset({2}), [waiting(9, 40)], [running(i, 5) for i in (0, 1, 3)], 64)
    assert plan is not None
    assert plan.releases == (Release(2, 2, 1),)
    assert [(a.request_id, a.slot, a.pages) for a in plan.admissions] == [
        (9, 2, (10, 11, 12, 13, 14))
    ]
    apply(plan, table)


def test_the_head_of_the_queue_blocks_those_behind_it() -> None:
    table = table_of(resident(1, 4, tuple(range(18))))
    queue = [waiting(2, 17), waiting(3, 1)]
    plan = compose(table, NOBODY, queue, [running(1, 5)], 64)
    assert plan is not None
    assert plan.admissions == ()


@pytest.mark.parametrize(
    ("pages", "admitted"), [(tuple(range(18)), [2]), (tuple(range(17)), [2, 3])]
)
def test_admission_stops_where_pages_end(pages: tuple[int, ...], admitted: list[int]) -> None:
    table = table_of(resident(1, 4, pages))
    queue = [waiting(2, 16), waiting(3, 1), waiting(4, 1)]
    plan = compose(table, NOBODY, queue, [running(1, 5)], 64)
    assert plan is not None
    assert [admit.request_id for admit in plan.admissions] == admitted


def test_holes_are_closed_from_the_top() -> None:
    table = table_of(
        resident(1, 4, (0,)), resident(2, 4, (1,)), resident(3, 4, (2,)), resident(4, 4, (3,))
    )
    plan = compose(table, frozenset({1, 2}), [], [running(3, 5), running(4, 5)], 64)
    assert plan is not None
    assert plan.moves == (Move(3, 0, 4), Move(2, 1, 3))
    assert [(row.slot, row.request_id) for row in plan.rows] == [(0, 4), (1, 3)]
    after = apply(plan, table)
    assert [r and r.request_id for r in after.slots] == [4, 3, None, None]


def test_a_newcomer_fills_the_hole_instead_of_a_move() -> None:
    table = table_of(resident(1, 4, (0,)), resident(2, 4, (1,)))
    plan = compose(table, frozenset({1}), [waiting(3)], [running(2, 5)], 64)
    assert plan is not None
    assert plan.moves == ()
    assert plan.admissions[0].slot == 0


def test_a_long_prefill_leaves_one_token_to_every_decode() -> None:
    table = table_of(resident(1, 0, tuple(range(10))), resident(2, 4, (10,)), resident(3, 6, (11,)))
    residents = [running(1, 80, prompt=80), running(2, 5), running(3, 7)]
    plan = compose(table, NOBODY, [], residents, 16)
    assert shares(plan) == {1: 14, 2: 1, 3: 1}


def test_prefills_are_served_in_order_of_arrival() -> None:
    table = table_of(resident(1, 0, (0, 1)), resident(2, 0, (2, 3)), resident(3, 0, (4, 5)))
    residents = [running(i, 10, prompt=10) for i in (1, 2, 3)]
    assert shares(compose(table, NOBODY, [], residents, 15)) == {1: 10, 2: 5}


@pytest.mark.parametrize(("computed", "budget", "samples"), [(0, 3, False), (0, 4, True)])
def test_a_row_samples_when_it_reaches_the_end(computed: int, budget: int, samples: bool) -> None:
    plan = compose(table_of(resident(1, computed, (0,))), NOBODY, [], [running(1, 4)], budget)
    assert plan is not None
    assert plan.rows[0].artifact == (Sample() if samples else None)


def test_log_probabilities_are_asked_for_with_the_token() -> None:
    asking = replace(running(1, 5), logprobs=3)
    plan = compose(table_of(resident(1, 4, (0,))), NOBODY, [], [asking], 8)
    assert plan is not None
    assert plan.rows[0].artifact == Sample(3)


def test_a_budget_below_the_decodes_goes_round() -> None:
    table = table_of(*(resident(i, 4, (i,)) for i in range(3)))
    turns = [turn_of(7, served=True), turn_of(5, served=True), turn_of(6, served=True)]
    residents = [running(i, 5, turn=turn) for i, turn in enumerate(turns)]
    assert shares(compose(table, NOBODY, [], residents, 1)) == {1: 1}
    assert shares(compose(table, NOBODY, [], residents, 2)) == {1: 1, 2: 1}


def test_the_oldest_prefill_takes_part_when_decodes_use_up_the_budget() -> None:
    table = table_of(resident(0, 0, (0,)), resident(1, 4, (1,)), resident(2, 4, (2,)))
    residents = [
        running(0, 4, turn=turn_of(3, served=True)),
        running(1, 5, turn=turn_of(4, served=True)),
        running(2, 5, turn=turn_of(5, served=True)),
    ]
    assert shares(compose(table, NOBODY, [], residents, 1)) == {0: 1}


def test_the_line_for_tokens() -> None:
    """Unserved newcomers stand behind the older unserved, and ahead of those just served."""
    assert turn_of(4, served=True) < turn_of(5, served=False) < turn_of(5, served=True)


def encoded_bytes(plan: StepPlan) -> int:
    return len(canonical_json(encode_plan(plan)))


def wide_table(slots: int, step: int = 0) -> SlotTable:
    limits = PlanLimits(1_000_000, 10**6, slots, 10**6, 8, 10**6)
    return SlotTable(limits, (None,) * slots, next_step=step)


def test_a_prefill_is_cut_at_the_bytes_of_a_plan() -> None:
    table = wide_table(1)
    prompt = Submission((999_999,) * 30_000, 1, Sampling())
    plan = compose(table, NOBODY, [Waiting(0, prompt)], [], 30_000)
    assert plan is not None
    assert PLAN_BYTES_MAX - 300 < encoded_bytes(plan) <= PLAN_BYTES_MAX
    assert 8_000 < plan.token_count < 30_000
    apply(plan, table)


def test_admissions_are_deferred_where_their_parameters_fill_a_plan() -> None:
    bias = tuple((999_000 + i, -0.1) for i in range(LOGIT_BIAS_ENTRIES_MAX))
    submission = Submission((999_999,) * 50, 1, Sampling(logit_bias=bias))
    table = wide_table(100, step=INTEGER_MAX - 1)
    queue = [Waiting(i, submission) for i in range(100)]
    plan = compose(table, NOBODY, queue, [], 10**6)
    assert plan is not None
    assert 2 <= len(plan.admissions) < 100
    assert encoded_bytes(plan) <= PLAN_BYTES_MAX
    assert plan.rows[0].request_id == 0
    apply(plan, table)


def decodes(count: int, slots: int) -> tuple[SlotTable, list[Running]]:
    """`count` decodes with the longest numbers, in a table of `slots` slots."""
    limits = PlanLimits(1_000_000, 10**9, slots, 10**6, 8, 10**6)
    far = INTEGER_MAX - SLOTS_MAX
    held = tuple(
        Resident(
            request_id=far + i,
            generation=i + 1,
            pages=(i,),
            prompt_tokens=1,
            tokens_max=8,
            samples=True,
            page_runs=((i, 1),),
            computed_tokens=1,
        )
        for i in range(count)
    )
    empty = (None,) * (slots - count)
    table = SlotTable(limits, (*held, *empty), admissions=count, next_step=INTEGER_MAX - 1)
    return table, [Running(far + i, (999_999, 999_999), 1, 20, 0) for i in range(count)]


def test_newcomers_leave_room_for_the_rows_of_residents() -> None:
    bias = tuple((999_000 + i, -0.1) for i in range(LOGIT_BIAS_ENTRIES_MAX))
    submission = Submission((999_999,), 1, Sampling(logit_bias=bias))
    table, residents = decodes(200, SLOTS_MAX)
    queue = [Waiting(INTEGER_MAX - 50 + i, submission) for i in range(50)]
    plan = compose(table, NOBODY, queue, residents, 10**6)
    assert plan is not None
    assert 1 <= len(plan.admissions) < 50
    assert {r.request_id for r in residents} <= {row.request_id for row in plan.rows}
    assert encoded_bytes(plan) <= PLAN_BYTES_MAX
    apply(plan, table)


def test_every_slot_gets_its_token_in_a_full_plan() -> None:
    """As many decodes as slots, and a queue that wants to enter."""
    table, residents = decodes(SLOTS_MAX, SLOTS_MAX)
    plan = compose(table, NOBODY, [waiting(INTEGER_MAX)], residents, 10**6)
    assert plan is not None
    assert plan.token_count == SLOTS_MAX
    assert encoded_bytes(plan) <= PLAN_BYTES_MAX
    apply(plan, table)


@pytest.mark.parametrize("seed", range(200))
def test_the_usual_step_is_what_the_composer_makes(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody leaves or waits; prefills and holes are among the tables, and small budgets."""
    random = Random(seed)
    slots: list[Resident | None] = []
    residents = []
    for request_id in random.sample(range(9), random.randint(0, 4)):
        prompt, known = 4, 4 + random.randint(0, 2)
        computed = random.choice([known - 1, known - 1, known - 1, random.randrange(known)])
        if random.random() < 0.1 and len(slots) < LIMITS.slots - 2:
            slots.append(None)
        slots.append(resident(request_id, computed, (request_id,)))
        residents.append(replace(running(request_id, known, prompt), logprobs=seed % 2 or None))
        if len(slots) == LIMITS.slots:
            break
    residents.sort(key=lambda request: request.request_id)
    budget = random.choice([1, 2, 4, 64])
    quick = composer.compose(table_of(*slots), NOBODY, [], residents, budget)
    monkeypatch.setattr(composer, "_decodes", lambda table, running: None)
    assert quick == composer.compose(table_of(*slots), NOBODY, [], residents, budget)
