"""Plans for the tests of this package: one valid plan with every kind of entry, and limits."""

from __future__ import annotations

from typing import Final

from program.plan import (
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
from program.slots import SlotTable, apply

LIMITS: Final = PlanLimits(
    vocab_size=1000,
    context_tokens=256,
    slots=4,
    pages=32,
    page_tokens=8,
    tokens_per_step=64,
)

SAMPLING: Final = Sampling(
    temperature=0.7,
    top_k=40,
    top_p=0.9,
    min_p=0.05,
    repetition_penalty=1.1,
    presence_penalty=-0.5,
    frequency_penalty=0.25,
    logit_bias=((3, -100.0), (999, 0.1)),
    seed=2**64 - 1,
)


def admit(
    slot: int,
    request_id: int,
    generation: int,
    pages: tuple[int, ...],
    *,
    prompt_tokens: int = 3,
    tokens_max: int = 10,
    sampling: Sampling | None = SAMPLING,
) -> Admit:
    return Admit(slot, request_id, generation, pages, prompt_tokens, tokens_max, sampling)


FIRST: Final = StepPlan(
    step=0,
    admissions=(admit(0, 10, 1, (0, 1)), admit(1, 11, 2, (2, 5)), admit(2, 12, 3, (6, 7))),
    rows=(Row(10, 0, 0, (1, 2, 3), Sample()), Row(11, 1, 0, (4, 5)), Row(12, 2, 0, ())),
)

# Request 10 leaves, 13 takes its slot, 12 moves to slot 3; 11 samples, 13 scores, 12 is empty.
SECOND: Final = StepPlan(
    step=1,
    releases=(Release(0, 10, 1),),
    admissions=(admit(0, 13, 4, (0, 8), sampling=None),),
    moves=(Move(2, 3, 12),),
    rows=(
        Row(13, 0, 0, (7, 8, 9), Score(last=2, top=5)),
        Row(11, 1, 2, (999,), Sample(logprobs=3)),
        Row(12, 3, 0, ()),
    ),
)


def table_after_first() -> SlotTable:
    return apply(FIRST, SlotTable.empty(LIMITS))
