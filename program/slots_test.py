"""The slot table: what a plan does to it, and every way a plan can contradict it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import ContractError
from program.canonical import digest
from program.plan import Move, Release, Row, Sample, Score, StepPlan
from program.plan_cases import FIRST, LIMITS, SECOND, admit, table_after_first
from program.slots import Resident, SlotTable, apply, check


def held(table: SlotTable) -> list[tuple[int, int, int, tuple[int, ...]] | None]:
    return [
        None if r is None else (r.request_id, r.generation, r.computed_tokens, r.pages)
        for r in table.slots
    ]


def test_releases_admissions_moves_rows_in_this_order() -> None:
    table = apply(SECOND, table_after_first())
    assert held(table) == [
        (13, 4, 3, (0, 8)),
        (11, 2, 3, (2, 5)),
        None,
        (12, 3, 0, (6, 7)),
    ]
    assert (table.next_step, table.admissions) == (2, 4)
    assert table.pages_in_use() == {0, 8, 2, 5, 6, 7}
    assert table.free_pages == LIMITS.pages - 6


def test_find() -> None:
    found = table_after_first().find(11)
    assert found is not None
    assert (found[0], found[1].request_id) == (1, 11)
    assert table_after_first().find(99) is None


def test_the_digest_is_the_stated_one() -> None:
    rows = [
        [0, 10, 1, 3, [[0, 2]]],
        [1, 11, 2, 2, [[2, 1], [5, 1]]],
        [2, 12, 3, 0, [[6, 2]]],
    ]
    assert table_after_first().digest() == digest(rows)
    assert SlotTable.empty(LIMITS).digest() == digest([])


@pytest.mark.parametrize(
    "change",
    [{"request_id": 9}, {"generation": 9}, {"computed_tokens": 9}, {"page_runs": ((9, 1),)}],
    ids=lambda change: next(iter(change)),
)
def test_the_digest_sees_every_field(change: dict[str, Any]) -> None:
    table = table_after_first()
    first = table.slots[0]
    assert first is not None
    other = replace(table, slots=(replace(first, **change), *table.slots[1:]))
    assert other.digest() != table.digest()


def test_the_digest_sees_the_slot() -> None:
    table = table_after_first()
    moved = replace(table, slots=(*table.slots[:2], None, table.slots[2]))
    assert moved.digest() != table.digest()


STEP = replace(SECOND, releases=(), admissions=(), moves=(), rows=())
CONTRADICTIONS: list[tuple[str, StepPlan]] = [
    ("step again", replace(STEP, step=0)),
    ("step skipped", replace(STEP, step=2)),
    ("release of nobody", replace(STEP, releases=(Release(3, 10, 1),))),
    ("release of another", replace(STEP, releases=(Release(1, 10, 1),))),
    ("release of an old generation", replace(STEP, releases=(Release(0, 10, 2),))),
    ("admit to a held slot", replace(STEP, admissions=(admit(0, 13, 4, (8, 9)),))),
    ("admit a resident", replace(STEP, admissions=(admit(3, 10, 4, (8, 9)),))),
    ("admit generation again", replace(STEP, admissions=(admit(3, 13, 3, (8, 9)),))),
    ("admit generation skipped", replace(STEP, admissions=(admit(3, 13, 5, (8, 9)),))),
    ("admit a held page", replace(STEP, admissions=(admit(3, 13, 4, (5, 9)),))),
    (
        "admit a page twice",
        replace(
            STEP,
            releases=(Release(0, 10, 1),),
            admissions=(admit(0, 13, 4, (8, 9)), admit(3, 14, 5, (9, 10))),
        ),
    ),
    ("move nobody", replace(STEP, moves=(Move(3, 2, 12),))),
    ("move another", replace(STEP, moves=(Move(2, 3, 11),))),
    ("move onto a holder", replace(STEP, moves=(Move(2, 1, 12),))),
    ("move to itself", replace(STEP, moves=(Move(2, 2, 12),))),
    ("row of nobody", replace(STEP, rows=(Row(10, 3, 3, (1,)),))),
    ("row of another", replace(STEP, rows=(Row(11, 0, 3, (1,)),))),
    ("row of the released", replace(SECOND, rows=(Row(10, 0, 3, (1,)),))),
    ("row in the slot before the move", replace(SECOND, rows=(Row(12, 2, 0, ()),))),
    ("row behind", replace(STEP, rows=(Row(10, 0, 2, (1,)),))),
    ("row ahead", replace(STEP, rows=(Row(10, 0, 4, (1,)),))),
    ("idle row ahead", replace(STEP, rows=(Row(10, 0, 4, ()),))),
    ("row beyond life", replace(STEP, rows=(Row(10, 0, 3, (1,) * 8),))),
    ("sample within the prompt", replace(STEP, rows=(Row(12, 2, 0, (1, 2), Sample()),))),
    (
        "sample without parameters",
        replace(SECOND, rows=(Row(13, 0, 0, (1, 2, 3), Sample()),)),
    ),
]


@pytest.mark.parametrize(
    "plan", [plan for _, plan in CONTRADICTIONS], ids=[name for name, _ in CONTRADICTIONS]
)
def test_contradictions_are_refused_and_change_nothing(plan: StepPlan) -> None:
    table = table_after_first()
    before = (held(table), table.digest(), table.admissions, table.next_step)
    with pytest.raises(ContractError) as caught:
        check(plan, table)
    assert caught.value.code == "contract.allocation"
    assert (held(table), table.digest(), table.admissions, table.next_step) == before


def test_limits_are_checked_before_the_table() -> None:
    with pytest.raises(ContractError) as caught:
        apply(replace(STEP, step=7, rows=(Row(10, 99, 0, ()),)), table_after_first())
    assert caught.value.code == "contract.program"


def test_a_life_can_be_used_to_its_end() -> None:
    plan = replace(STEP, rows=(Row(10, 0, 3, (1,) * 7, Sample()),))
    resident = apply(plan, table_after_first()).slots[0]
    assert resident is not None
    assert resident.computed_tokens == resident.tokens_max == 10


def test_a_request_may_be_scored_within_its_prompt() -> None:
    check(replace(STEP, rows=(Row(12, 2, 0, (1, 2), Score(2, 1)),)), table_after_first())


def test_slots_swap_through_a_hole() -> None:
    moves = (Move(0, 3, 10), Move(1, 0, 11), Move(3, 1, 10))
    table = apply(replace(STEP, moves=moves), table_after_first())
    assert [r and r.request_id for r in table.slots] == [11, 10, 12, None]


@given(st.lists(st.integers(1, 10), min_size=1, max_size=10))
def test_chunks_leave_the_same_table_as_one_row(sizes: list[int]) -> None:
    """Any chunking of the same tokens ends in the same digest."""
    total = min(sum(sizes), 10)
    admission = admit(0, 1, 1, (0, 1), prompt_tokens=1)
    whole = apply(
        StepPlan(0, admissions=(admission,), rows=(Row(1, 0, 0, (5,) * total),)),
        SlotTable.empty(LIMITS),
    )
    table = apply(StepPlan(0, admissions=(admission,)), SlotTable.empty(LIMITS))
    done = 0
    for size in sizes:
        count = min(size, total - done)
        row = Row(1, 0, done, (5,) * count)
        table = apply(StepPlan(table.next_step, rows=(row,)), table)
        done += count
    assert table.digest() == whole.digest()


def test_first_is_what_the_other_cases_start_from() -> None:
    assert table_after_first() == apply(FIRST, SlotTable.empty(LIMITS))
    assert all(isinstance(r, Resident) for r in table_after_first().residents)
