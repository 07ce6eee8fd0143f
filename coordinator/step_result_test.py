"""Artifacts are accepted only when they are exactly those the plan asked for."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from coordinator.step_result import StepResult, match_artifacts
from errors import ContractError
from program.artifacts import SampledToken, TokenLogprob
from program.plan import PlanLimits, Row, Sample, StepPlan

LIMITS = PlanLimits(
    vocab_size=100,
    context_tokens=64,
    slots=4,
    pages=8,
    page_tokens=8,
    tokens_per_step=64,
)
PLAN = StepPlan(
    step=7,
    rows=(
        Row(1, 0, 4, (9,), Sample(None)),
        Row(2, 1, 0, (1, 2)),
        Row(3, 2, 0, (1, 2), Sample(2)),
    ),
)
FIRST = SampledToken(1, 5, 50)
SECOND = SampledToken(3, 2, 60, -0.5, (TokenLogprob(60, -0.5), TokenLogprob(1, -2.0)))
GOOD = StepResult(7, (FIRST, SECOND))

BAD: list[tuple[str, StepResult]] = [
    ("step", StepResult(6, (FIRST, SECOND))),
    ("missing", StepResult(7, (FIRST,))),
    ("none", StepResult(7, ())),
    ("extra", StepResult(7, (FIRST, SECOND, SECOND))),
    ("order", StepResult(7, (SECOND, FIRST))),
    ("request", StepResult(7, (replace(FIRST, request_id=2), SECOND))),
    ("position", StepResult(7, (replace(FIRST, position=6), SECOND))),
    ("token", StepResult(7, (replace(FIRST, token_id=100), SECOND))),
    ("negative token", StepResult(7, (replace(FIRST, token_id=-1), SECOND))),
    ("unasked logprob", StepResult(7, (replace(FIRST, logprob=-1.0), SECOND))),
    ("unasked top", StepResult(7, (replace(FIRST, top=SECOND.top), SECOND))),
    ("no logprob", StepResult(7, (FIRST, replace(SECOND, logprob=None)))),
    ("short top", StepResult(7, (FIRST, replace(SECOND, top=SECOND.top[:1])))),
    ("long top", StepResult(7, (FIRST, replace(SECOND, top=SECOND.top * 2)))),
    ("nan", StepResult(7, (FIRST, replace(SECOND, logprob=math.nan)))),
    ("top nan", StepResult(7, (FIRST, replace(SECOND, top=(TokenLogprob(1, math.nan),) * 2)))),
    ("top inf", StepResult(7, (FIRST, replace(SECOND, top=(TokenLogprob(1, -math.inf),) * 2)))),
    ("top token", StepResult(7, (FIRST, replace(SECOND, top=(TokenLogprob(100, -1.0),) * 2)))),
]


def test_exactly_what_was_asked() -> None:
    assert match_artifacts(PLAN, GOOD, LIMITS) == {1: FIRST, 3: SECOND}


@pytest.mark.parametrize("result", [result for _, result in BAD], ids=[name for name, _ in BAD])
def test_anything_else_is_refused(result: StepResult) -> None:
    with pytest.raises(ContractError) as caught:
        match_artifacts(PLAN, result, LIMITS)
    assert caught.value.code == "contract.metadata"
