"""The capacity formula against the published 4B shape, its limits and unequal ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import ConfigError
from program.capacity import CapacityInput, page_bytes, plan_capacity, slot_bytes, weight_bytes
from program.partition import Columns, Replicated, Rows
from program.spec import Loading, ProgramSpec, Stage, StateScope, StateSpec, WeightSpec

MIB = 2**20


def spec_of(
    world_size: int, states: tuple[StateSpec, ...], weights: tuple[WeightSpec, ...] = ()
) -> ProgramSpec:
    return ProgramSpec(
        name="test",
        world_size=world_size,
        hidden_size=2560,
        weights=weights,
        stages=(Stage("only"),),
        loading=Loading.LOCAL,
        artifact_ranks=(0,),
        state=states,
    )


def linear_state(linear_ranks: int) -> tuple[StateSpec, ...]:
    """4B: 24 linear layers, 32 value heads of 128 x 128, 8192 channels, kernel 4, bf16 conv."""
    recurrent = StateSpec("recurrent", (24, 32 // linear_ranks, 128, 128), 4)
    conv = StateSpec("conv", (24, 8192 // linear_ranks, 3), 2)
    return recurrent, conv


SMALL = spec_of(
    2,
    (
        StateSpec("recurrent", (2, 5), 4),
        StateSpec("keys", (3, 4), 4, StateScope.TOKEN),
        StateSpec("values", (3, 4), 4, StateScope.TOKEN),
    ),
    (
        WeightSpec("whole", (10,), Replicated()),
        WeightSpec("rows", (4, 6), Rows(4)),
        WeightSpec("columns", (6, 4), Columns(2)),
    ),
)
SLOT_BYTES = 40
PAGE_BYTES = 96 * 8
WEIGHT_BYTES = 10 * 4 + 12 * 2 + 12 * 2
GIVEN = CapacityInput(
    rank_memory_bytes=(100_000, 100_000),
    weight_item_bytes={"whole": 4, "rows": 2, "columns": 2},
    vocab_size=1000,
    context_tokens=64,
    max_batch=4,
    step_tokens=32,
    page_tokens=8,
    scratch_bytes=1000,
    reserve_bytes=500,
)
FIXED = WEIGHT_BYTES + 1000 + 500


@pytest.mark.parametrize(("ranks", "mib"), [(1, 49.125), (2, 24.5625)])
def test_state_of_one_request_at_the_4b_shape(ranks: int, mib: float) -> None:
    assert slot_bytes(spec_of(2, linear_state(ranks))) == mib * MIB


def test_bytes_come_from_the_local_shapes() -> None:
    assert slot_bytes(SMALL) == SLOT_BYTES
    assert page_bytes(SMALL, 8) == PAGE_BYTES
    assert [weight_bytes(SMALL, rank, GIVEN.weight_item_bytes) for rank in (0, 1)] == [
        WEIGHT_BYTES,
        WEIGHT_BYTES,
    ]


def test_pages_stop_at_what_the_slots_can_use() -> None:
    capacity = plan_capacity(SMALL, GIVEN)
    assert (capacity.limits.slots, capacity.limits.pages) == (4, 4 * 8)
    assert capacity.state_bytes(0) == 4 * SLOT_BYTES + 32 * PAGE_BYTES
    assert capacity.unused_bytes(0) == 100_000 - FIXED - capacity.state_bytes(0)
    assert capacity.limits.tokens_per_step == 32


@pytest.mark.parametrize("small_rank", [0, 1])
def test_the_smallest_rank_decides(small_rank: int) -> None:
    memory = [100_000, 100_000]
    memory[small_rank] = FIXED + 4 * SLOT_BYTES + 9 * PAGE_BYTES + PAGE_BYTES - 1
    capacity = plan_capacity(SMALL, replace(GIVEN, rank_memory_bytes=tuple(memory)))
    assert (capacity.limits.slots, capacity.limits.pages) == (4, 9)
    assert [budget.pages for budget in capacity.ranks] == [
        9 if rank == small_rank else 32 for rank in (0, 1)
    ]


def test_one_rank_may_limit_slots_and_another_pages() -> None:
    memory = (FIXED + 2 * (SLOT_BYTES + PAGE_BYTES), FIXED + 4 * (SLOT_BYTES + PAGE_BYTES))
    capacity = plan_capacity(SMALL, replace(GIVEN, rank_memory_bytes=memory))
    assert [budget.slots for budget in capacity.ranks] == [2, 4]
    assert (capacity.limits.slots, capacity.limits.pages) == (2, 2)


def test_exactly_one_request_fits_and_one_byte_less_does_not() -> None:
    enough = FIXED + SLOT_BYTES + PAGE_BYTES
    capacity = plan_capacity(SMALL, replace(GIVEN, rank_memory_bytes=(enough, 100_000)))
    assert (capacity.limits.slots, capacity.limits.pages) == (1, 1)
    assert capacity.unused_bytes(0) == 0
    with pytest.raises(ConfigError) as caught:
        plan_capacity(SMALL, replace(GIVEN, rank_memory_bytes=(100_000, enough - 1)))
    assert caught.value.code == "config.capacity"
    assert caught.value.problems[0].field == "rank_memory_bytes[1]"
    assert caught.value.problems[0].value == str(enough - 1)


def test_a_slot_can_demand_more_pages() -> None:
    memory = FIXED + 4 * SLOT_BYTES + 8 * PAGE_BYTES
    given = replace(GIVEN, rank_memory_bytes=(memory, memory), pages_per_slot_min=4)
    capacity = plan_capacity(SMALL, given)
    assert (capacity.limits.slots, capacity.limits.pages) == (2, 8)


def test_a_program_without_keys_and_values_is_limited_by_slots_alone() -> None:
    spec = spec_of(1, linear_state(1))
    memory = (3 * slot_bytes(spec) + 1000 + 500,)
    given = replace(GIVEN, rank_memory_bytes=memory, weight_item_bytes={})
    capacity = plan_capacity(spec, given)
    assert (capacity.limits.slots, capacity.limits.pages) == (3, 24)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rank_memory_bytes", (1,)),
        ("max_batch", 0),
        ("max_batch", 257),
        ("step_tokens", 0),
        ("step_tokens", 1639),
        ("page_tokens", 0),
        ("context_tokens", 0),
        ("pages_per_slot_min", 0),
        ("scratch_bytes", -1),
        ("reserve_bytes", -1),
    ],
)
def test_refused_settings(field: str, value: Any) -> None:
    given = replace(GIVEN, **{field: value})
    with pytest.raises(ConfigError) as caught:
        plan_capacity(SMALL, given)
    assert caught.value.code == "config.capacity"
    assert [problem.field for problem in caught.value.problems] == [field]


def test_all_refused_settings_are_reported_together() -> None:
    with pytest.raises(ConfigError) as caught:
        plan_capacity(SMALL, replace(GIVEN, max_batch=0, page_tokens=0))
    assert len(caught.value.problems) == 2


def test_every_weight_has_a_width() -> None:
    with pytest.raises(ConfigError) as caught:
        plan_capacity(SMALL, replace(GIVEN, weight_item_bytes={"whole": 4}))
    assert caught.value.problems[0].field == "weight_item_bytes"


@given(
    st.tuples(st.integers(FIXED + 808, 60_000), st.integers(FIXED + 808, 60_000)),
    st.integers(1, 8),
    st.integers(1, 3),
)
def test_no_rank_is_ever_over_its_budget(
    memory: tuple[int, int], max_batch: int, per_slot: int
) -> None:
    given_input = replace(
        GIVEN, rank_memory_bytes=memory, max_batch=max_batch, pages_per_slot_min=per_slot
    )
    try:
        capacity = plan_capacity(SMALL, given_input)
    except ConfigError:
        assert min(memory) < FIXED + SLOT_BYTES + per_slot * PAGE_BYTES
        return
    limits = capacity.limits
    assert limits.pages >= limits.slots * per_slot
    for rank in (0, 1):
        assert capacity.unused_bytes(rank) >= 0
        assert memory[rank] >= FIXED + capacity.state_bytes(rank)
    # One more slot would be too many for some rank, or more than was asked for.
    if limits.slots < max_batch:
        needed = (limits.slots + 1) * (SLOT_BYTES + per_slot * PAGE_BYTES)
        assert min(memory) - FIXED < needed
