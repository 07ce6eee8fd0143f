"""The proof of overlap finds overlap, finds none in a control, and sees through fakes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from errors import TPError
from program.plan import Admit, Row, Sample, Sampling, StepPlan
from program.plan_codec import plan_digest
from tools.bench.ab_overlap import (
    Evidence,
    Overlap,
    demand_none,
    demand_overlap,
    mixed_steps,
    overlap,
)
from tools.bench.turned_engine import StepRecord

LONG, SHORT = 1, 0


def admit(slot: int, request: int, prompt: int) -> Admit:
    return Admit(slot, request, request + 1, (slot,), prompt, prompt + 8, Sampling())


def chunk(start: int, count: int, *, last: bool = False) -> Row:
    return Row(LONG, 1, start, (5,) * count, Sample() if last else None)


def decode(start: int) -> Row:
    return Row(SHORT, 0, start, (7,), Sample())


def record(plan: StepPlan) -> StepRecord:
    digest = plan_digest(plan)
    return StepRecord(plan, (digest, digest), float(plan.step), plan.step + 0.5, 0.1)


def evidence(*plans: StepPlan) -> Evidence:
    tokens = [(row.request_id, p.step) for p in plans for row in p.rows if row.artifact is not None]
    return Evidence([record(plan) for plan in plans], tokens)


FIRST = StepPlan(0, admissions=(admit(0, SHORT, 1),), rows=(Row(SHORT, 0, 0, (3,), Sample()),))
MIXED = evidence(
    FIRST,
    StepPlan(1, admissions=(admit(1, LONG, 5),), rows=(decode(1), chunk(0, 2))),
    StepPlan(2, rows=(decode(2), chunk(2, 2))),
    StepPlan(3, rows=(decode(3), chunk(4, 1, last=True))),
)
CONTROL = evidence(
    FIRST,
    StepPlan(1, rows=(decode(1),)),
    StepPlan(2, rows=(decode(2),)),
    StepPlan(3, admissions=(admit(1, LONG, 5),), rows=(chunk(0, 2),)),
    StepPlan(4, rows=(chunk(2, 2),)),
    StepPlan(5, rows=(chunk(4, 1, last=True),)),
)


def test_overlap_is_counted() -> None:
    # A last chunk of one token is a chunk; tokens of its step come with the subject's own first.
    assert overlap(MIXED, LONG) == Overlap(chunks=3, mixed_steps=3, tokens_meanwhile=2)
    assert mixed_steps(MIXED) == 3
    demand_overlap(overlap(MIXED, LONG))


def test_the_negative_control_has_none() -> None:
    found = overlap(CONTROL, LONG)
    assert found == Overlap(chunks=3, mixed_steps=0, tokens_meanwhile=0)
    assert mixed_steps(CONTROL) == 0
    demand_none(found, mixed_steps(CONTROL))


def test_a_control_that_overlaps_fails() -> None:
    with pytest.raises(TPError) as caught:
        demand_none(overlap(MIXED, LONG), mixed_steps(MIXED))
    assert caught.value.code == "bench.overlap"


def test_a_control_in_which_others_overlap_fails() -> None:
    with pytest.raises(TPError):
        demand_none(overlap(CONTROL, LONG), steps=1)


def test_a_run_without_overlap_is_no_proof() -> None:
    with pytest.raises(TPError) as caught:
        demand_overlap(overlap(CONTROL, LONG))
    assert caught.value.code == "bench.overlap"


def test_a_prompt_of_one_step_is_no_proof() -> None:
    with pytest.raises(TPError):
        demand_overlap(Overlap(chunks=1, mixed_steps=1, tokens_meanwhile=1))


def _with_decodes_written_in(found: Evidence) -> Evidence:
    """The log of the control, edited so that it seems to overlap."""
    steps = list(found.steps)
    plan = steps[4].plan
    steps[4] = replace(steps[4], plan=replace(plan, rows=(decode(3), *plan.rows)))
    return replace(found, steps=steps)


def _with_digests_made_to_fit(found: Evidence) -> Evidence:
    faked = _with_decodes_written_in(found)
    return replace(faked, steps=[record(step.plan) for step in faked.steps])


def _with_tokens_moved(found: Evidence) -> Evidence:
    return replace(found, tokens=[(r, 4 if s == 2 else s) for r, s in found.tokens])


def _with_a_token_nobody_sampled(found: Evidence) -> Evidence:
    return replace(found, tokens=[*found.tokens, (SHORT, 4)])


def _without_a_chunk(found: Evidence) -> Evidence:
    return replace(found, steps=[step for step in found.steps if step.plan.step != 4])


def _with_a_rank_that_ran_something_else(found: Evidence) -> Evidence:
    digests = (found.steps[0].rank_digests[0], "0" * 64)
    return replace(found, steps=[replace(found.steps[0], rank_digests=digests), *found.steps[1:]])


def _without_ranks(found: Evidence) -> Evidence:
    return replace(found, steps=[replace(step, rank_digests=()) for step in found.steps])


@pytest.mark.parametrize(
    "fake",
    [
        _with_decodes_written_in,
        _with_digests_made_to_fit,
        _with_tokens_moved,
        _with_a_token_nobody_sampled,
        _without_a_chunk,
        _with_a_rank_that_ran_something_else,
        _without_ranks,
    ],
)
def test_faked_overlap_is_refused(fake: Callable[[Evidence], Evidence]) -> None:
    with pytest.raises(TPError) as caught:
        overlap(fake(CONTROL), LONG)
    assert caught.value.code == "bench.overlap"


def test_a_request_that_never_ran_is_refused() -> None:
    with pytest.raises(TPError):
        overlap(CONTROL, 99)
