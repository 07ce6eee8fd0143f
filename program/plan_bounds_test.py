"""Every limit: the last value inside passes, the first outside is `contract.program`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from errors import ContractError
from program.plan import (
    ARTIFACT_PAIRS_MAX,
    INTEGER_MAX,
    TOP_MAX,
    Admit,
    Move,
    PlanLimits,
    Release,
    Row,
    Sample,
    Sampling,
    Score,
    StepPlan,
)
from program.plan_bounds import artifact_pairs, check_bounds, row_pairs
from program.plan_cases import FIRST, LIMITS, SECOND, admit

ADMIT = admit(0, 10, 1, (0, 1))
ROW = Row(10, 0, 0, (1, 2, 3), Sample())


def admitting(**changes: Any) -> StepPlan:
    return StepPlan(0, admissions=(replace(ADMIT, **changes),))


def running(**changes: Any) -> StepPlan:
    return StepPlan(0, rows=(replace(ROW, **changes),))


INSIDE: list[tuple[str, StepPlan]] = [
    ("nothing", StepPlan(0)),
    ("first", FIRST),
    ("second", SECOND),
    ("last step", StepPlan(INTEGER_MAX)),
    ("last slot", admitting(slot=LIMITS.slots - 1)),
    ("last page", admitting(pages=(0, LIMITS.pages - 1))),
    ("one position", admitting(tokens_max=1, prompt_tokens=1, pages=(0,))),
    ("prompt fills", admitting(tokens_max=10, prompt_tokens=10)),
    ("whole context", admitting(tokens_max=256, pages=tuple(range(32)))),
    ("last token id", running(token_ids=(LIMITS.vocab_size - 1, 0))),
    ("full budget", running(token_ids=(1,) * LIMITS.tokens_per_step)),
    ("most alternatives", running(artifact=Sample(TOP_MAX))),
    ("score all", running(artifact=Score(last=3, top=0))),
    ("idle row", running(token_ids=(), artifact=None)),
]
OUTSIDE: list[tuple[str, StepPlan]] = [
    ("step", StepPlan(-1)),
    ("step 2^53", StepPlan(INTEGER_MAX + 1)),
    ("slot", admitting(slot=LIMITS.slots)),
    ("negative slot", admitting(slot=-1)),
    ("page", admitting(pages=(0, LIMITS.pages))),
    ("negative page", admitting(pages=(-1, 0))),
    ("page twice", admitting(pages=(1, 1))),
    ("pages descending", admitting(pages=(1, 0))),
    ("page missing", admitting(pages=(0,))),
    ("page too many", admitting(pages=(0, 1, 2))),
    ("no position", admitting(tokens_max=0, pages=())),
    ("beyond context", admitting(tokens_max=257, pages=tuple(range(33)))),
    ("no prompt", admitting(prompt_tokens=0)),
    ("prompt beyond life", admitting(prompt_tokens=11)),
    ("sampling", admitting(sampling=Sampling(top_p=0.0))),
    ("sampling vocabulary", admitting(sampling=Sampling(top_k=LIMITS.vocab_size + 1))),
    ("token id", running(token_ids=(LIMITS.vocab_size,))),
    ("negative token id", running(token_ids=(-1,))),
    ("budget", running(token_ids=(1,) * (LIMITS.tokens_per_step + 1))),
    ("alternatives", running(artifact=Sample(TOP_MAX + 1))),
    ("score too many", running(artifact=Score(last=4, top=0))),
    ("score none", running(artifact=Score(last=0, top=0))),
    ("score alternatives", running(artifact=Score(last=1, top=TOP_MAX + 1))),
    ("sample after nothing", running(token_ids=())),
    ("score nothing", running(token_ids=(), artifact=Score(last=1, top=1))),
    ("row slot", running(slot=LIMITS.slots)),
    ("release slot", StepPlan(0, releases=(Release(LIMITS.slots, 1, 1),))),
    ("releases unordered", StepPlan(0, releases=(Release(1, 1, 1), Release(0, 2, 2)))),
    ("release twice", StepPlan(0, releases=(Release(1, 1, 1), Release(1, 1, 1)))),
    ("rows unordered", StepPlan(0, rows=(Row(1, 1, 0, ()), Row(2, 0, 0, ())))),
    ("row twice", StepPlan(0, rows=(Row(1, 1, 0, ()), Row(1, 1, 0, ())))),
    ("move from", StepPlan(0, moves=(Move(LIMITS.slots, 0, 1),))),
    ("move to", StepPlan(0, moves=(Move(0, LIMITS.slots, 1),))),
]


@pytest.mark.parametrize("plan", [plan for _, plan in INSIDE], ids=[name for name, _ in INSIDE])
def test_inside(plan: StepPlan) -> None:
    check_bounds(plan, LIMITS)


@pytest.mark.parametrize("plan", [plan for _, plan in OUTSIDE], ids=[name for name, _ in OUTSIDE])
def test_outside(plan: StepPlan) -> None:
    with pytest.raises(ContractError) as caught:
        check_bounds(plan, LIMITS)
    assert caught.value.code == "contract.program"


def test_bytes_of_the_plan_are_bounded() -> None:
    wide = PlanLimits(1_000_000, 100_000, 4, 100_000, 1, 100_000)
    rows = (Row(1, 0, 0, (999_999,) * 9_000),)
    check_bounds(StepPlan(0, rows=rows), wide)
    rows = (Row(1, 0, 0, (999_999,) * 9_100),)
    with pytest.raises(ContractError) as caught:
        check_bounds(StepPlan(0, rows=rows), wide)
    assert caught.value.code == "contract.program"


def test_log_probabilities_of_a_step_are_bounded() -> None:
    wide = PlanLimits(1000, 100_000, 4, 100_000, 1, 100_000)
    count = ARTIFACT_PAIRS_MAX // 128
    rows = (Row(1, 0, 0, (1,) * count, Score(last=count, top=128)),)
    assert artifact_pairs(StepPlan(0, rows=rows)) == ARTIFACT_PAIRS_MAX
    check_bounds(StepPlan(0, rows=rows), wide)
    rows = (Row(1, 0, 0, (1,) * (count + 1), Score(last=count + 1, top=128)),)
    with pytest.raises(ContractError) as caught:
        check_bounds(StepPlan(0, rows=rows), wide)
    assert caught.value.code == "contract.program"


def test_pairs_of_a_row() -> None:
    artifacts = (None, Sample(), Sample(0), Sample(3), Score(2, 5), Score(2, 0))
    rows = tuple(Row(i, i, 0, (1, 2), artifact) for i, artifact in enumerate(artifacts))
    assert [row_pairs(row) for row in rows] == [0, 0, 1, 4, 10, 0]
    assert artifact_pairs(StepPlan(0, rows=rows)) == 15


def test_alternatives_are_bounded_by_the_vocabulary() -> None:
    small = replace(LIMITS, vocab_size=5)
    plan = StepPlan(0, rows=(Row(1, 0, 0, (1,), Sample(6)),))
    with pytest.raises(ContractError):
        check_bounds(plan, small)


def test_a_request_that_never_samples_needs_no_parameters() -> None:
    check_bounds(StepPlan(0, admissions=(Admit(0, 1, 1, (0,), 8, 8, None),)), LIMITS)
