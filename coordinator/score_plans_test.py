"""Every way to cut a scored request covers each token once and asks for each position once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.model_cases import model_run, score_options
from coordinator.model_options import ScoreOptions
from coordinator.score_plans import (
    TOP_DEFAULT,
    check_tokens,
    plans,
    score_request,
    step_tokens_max,
)
from errors import ConfigError
from program.canonical import canonical_json
from program.plan import PLAN_BYTES_MAX, PlanLimits, Score
from program.plan_codec import encode_plan
from program.slots import SlotTable, apply

LIMITS = PlanLimits(
    vocab_size=96, context_tokens=64, slots=2, pages=4, page_tokens=16, tokens_per_step=32
)


def options(**given_options: Any) -> ScoreOptions:
    return score_options(model_run(Path("/m")), **{"top": 5} | given_options)


OPTIONS = options()


def refused_field(tokens: tuple[int, ...], options: ScoreOptions = OPTIONS) -> str:
    with pytest.raises(ConfigError) as refusal:
        score_request(tokens, options, LIMITS, LIMITS.context_tokens)
    return refusal.value.problems[0].field


@st.composite
def cases(draw: st.DrawFn) -> tuple[int, ScoreOptions]:
    count = draw(st.integers(1, 64))
    optional = {
        "last": st.integers(1, count),
        "prefill_tokens": st.integers(1, 32),
        "decode_from": st.integers(0, count),
    }
    return count, options(**{name: draw(st.none() | size) for name, size in optional.items()})


@given(cases())
def test_steps_cover_all_tokens_and_ask_for_the_wanted_positions(
    case: tuple[int, ScoreOptions],
) -> None:
    count, asked_for = case
    tokens = tuple(range(count))
    request = score_request(tokens, asked_for, LIMITS, 64)
    table = SlotTable.empty(LIMITS)
    done: list[int] = []
    asked: list[int] = []
    for plan in plans(request, table):
        table = apply(plan, table)
        for row in plan.rows:
            assert row.start_position == len(done)
            done += row.token_ids
            length = len(row.token_ids)
            assert length <= request.chunk
            assert length == 1 or len(done) <= request.decode_from
            if isinstance(row.artifact, Score):
                assert row.artifact.top == 5
                asked += range(len(done) - row.artifact.last, len(done))
    assert tuple(done) == tokens
    assert asked == list(range(count - (asked_for.last or count), count))
    assert not table.residents


def test_a_session_scores_one_request_after_the_other() -> None:
    table = SlotTable.empty(LIMITS)
    request = score_request((1, 2, 3), OPTIONS, LIMITS, 64)
    for _ in range(3):
        for plan in plans(request, table):
            table = apply(plan, table)
    assert table.admissions == 3


@pytest.mark.parametrize(
    ("tokens", "field"),
    [
        ((), "tokens"),
        ((0,) * 65, "number of tokens"),
        ((1, 96), "tokens[1]"),
        ((1, 2, -1), "tokens[2]"),
    ],
)
def test_tokens_that_the_model_cannot_take(tokens: tuple[int, ...], field: str) -> None:
    assert refused_field(tokens) == field


@pytest.mark.parametrize(
    ("option", "value", "field"),
    [
        ("top", 97, "--top"),
        ("prefill_tokens", 33, "--prefill-tokens"),
        ("last", 4, "--positions last"),
        ("decode_from", 4, "--decode-from"),
    ],
)
def test_options_beyond_the_model_are_refused_and_not_clamped(
    option: str, value: int, field: str
) -> None:
    assert refused_field((1, 2, 3), options(**{option: value})) == field
    score_request((1, 2, 3), options(**{option: value - 1}), LIMITS, 64)


def test_too_few_pages() -> None:
    limits = replace(LIMITS, pages=1)
    check_tokens((0,) * 17, 96, 64)
    with pytest.raises(ConfigError) as refusal:
        score_request((0,) * 17, OPTIONS, limits, 64)
    assert refusal.value.code == "config.capacity"


@pytest.mark.parametrize(("vocab_size", "top"), [(96, 64), (64, 64), (9, 9)])
def test_the_default_top_fits_a_small_vocabulary(vocab_size: int, top: int) -> None:
    limits = replace(LIMITS, vocab_size=vocab_size)
    assert score_request((0,), options(top=None), limits, 64).top == top
    assert TOP_DEFAULT == 64


@pytest.mark.parametrize("vocab_size", [2, 10, 11, 128, 1000, 248320, 2**24])
def test_the_largest_step_fits_the_bytes_of_a_plan(vocab_size: int) -> None:
    """With ids, positions and request ids as long as they can be."""
    limits = replace(LIMITS, vocab_size=vocab_size, tokens_per_step=10**6, context_tokens=10**7)
    limits = replace(limits, pages=10**7)
    count = 2 * step_tokens_max(limits)
    request = score_request((vocab_size - 1,) * count, options(top=None), limits, count)
    for plan in plans(request, SlotTable.empty(limits)):
        assert len(canonical_json(encode_plan(plan))) <= PLAN_BYTES_MAX
    one_more = options(top=None, prefill_tokens=step_tokens_max(limits) + 1)
    with pytest.raises(ConfigError):
        score_request((0,) * count, one_more, limits, count)
