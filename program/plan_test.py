"""Sizes of a plan and limits that are refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from errors import ConfigError
from program.plan import (
    PAYLOAD_BYTES_MAX,
    PLAN_BYTES_MAX,
    SLOTS_MAX,
    VOCAB_SIZE_MAX,
    Row,
    StepPlan,
    pages_needed,
    tokens_per_step_max,
)
from program.plan_cases import FIRST, LIMITS, SECOND


@pytest.mark.parametrize(("hidden", "item", "expected"), [(2560, 4, 1638), (2560, 8, 819)])
def test_tokens_per_step_of_the_4b_shape(hidden: int, item: int, expected: int) -> None:
    assert tokens_per_step_max(hidden, item) == expected
    assert expected * hidden * item <= PAYLOAD_BYTES_MAX < (expected + 1) * hidden * item


@pytest.mark.parametrize(("tokens", "expected"), [(1, 1), (7, 1), (8, 1), (9, 2), (16, 2)])
def test_pages_are_rounded_up(tokens: int, expected: int) -> None:
    assert pages_needed(tokens, 8) == expected


def test_a_plan_without_tokens_still_has_one_operand_row() -> None:
    assert StepPlan(step=0).operand_rows == 1
    assert StepPlan(step=0, rows=(Row(1, 0, 0, ()),)).operand_rows == 1
    assert (FIRST.token_count, FIRST.operand_rows) == (5, 5)
    assert SECOND.token_count == 4


@pytest.mark.parametrize(
    "field",
    ["vocab_size", "context_tokens", "slots", "pages", "page_tokens", "tokens_per_step"],
)
@pytest.mark.parametrize("value", [0, -1, 2**53, True, 1.0])
def test_limits_are_positive_integers(field: str, value: int) -> None:
    with pytest.raises(ConfigError) as caught:
        replace(LIMITS, **{field: value})
    assert caught.value.problems[0].field == field


def test_slots_are_bounded_by_the_bytes_of_a_plan() -> None:
    replace(LIMITS, slots=SLOTS_MAX)
    with pytest.raises(ConfigError) as caught:
        replace(LIMITS, slots=SLOTS_MAX + 1)
    assert caught.value.problems[0].field == "slots"


def test_token_ids_are_exact_in_binary32() -> None:
    replace(LIMITS, vocab_size=VOCAB_SIZE_MAX)
    with pytest.raises(ConfigError) as caught:
        replace(LIMITS, vocab_size=VOCAB_SIZE_MAX + 1)
    assert caught.value.problems[0].field == "vocab_size"


def test_the_plan_leaves_room_for_the_rest_of_a_command() -> None:
    """The longest other keys: phase of 256 characters, each escaped; rank and step of 16 digits."""
    rest = '{"phase":"' + "\\u0000" * 256 + '","plan":,"rank":' + "9" * 16 + ',"step":' + "9" * 16
    assert PLAN_BYTES_MAX + len(rest) + 1 <= 65_536
