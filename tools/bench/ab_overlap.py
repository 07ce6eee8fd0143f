"""Proof that a long prompt was prefilled while other requests decoded, and its negative control.

The evidence is what happened, not what a scheduler says of itself: plans that every rank reported
by digest as the one it ran, and tokens as their clients got them. Before anything is counted the
two must explain each other, row by row and token by token, or the evidence is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from errors import TPError
from program.plan import Row, StepPlan
from program.plan_codec import plan_digest
from tools.bench.turned_engine import StepRecord


@dataclass(frozen=True)
class Evidence:
    """Steps in order, and which request got a token of which step: (request id, step)."""

    steps: Sequence[StepRecord]
    tokens: Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Overlap:
    """chunks: steps that held tokens of the subject's prompt.

    mixed_steps: those of them that held decode rows of others too. tokens_meanwhile: tokens that
    others got between the first chunk and the last, so before the subject's own first token.
    """

    chunks: int
    mixed_steps: int
    tokens_meanwhile: int

    @property
    def is_none(self) -> bool:
        return self.mixed_steps == 0 and self.tokens_meanwhile == 0


def overlap(evidence: Evidence, subject: int) -> Overlap:
    """How far the prefill of request `subject` overlapped with the decoding of others.

    Raises TPError `bench.overlap` for evidence that contradicts itself.
    """
    prompts = _check(evidence)
    chunks = [
        record.plan
        for record in evidence.steps
        if any(row.request_id == subject and _is_prefill(row, prompts) for row in record.plan.rows)
    ]
    if not chunks:
        raise _refused(f"no step holds the prompt of request {subject}")
    during = range(chunks[0].step, chunks[-1].step)
    meanwhile = [token for token in evidence.tokens if token[0] != subject and token[1] in during]
    mixed = [plan for plan in chunks if _decodes(plan, prompts)]
    return Overlap(len(chunks), len(mixed), len(meanwhile))


def mixed_steps(evidence: Evidence) -> int:
    """Steps that held prefill rows and decode rows, whoever's. Raises as `overlap` does."""
    prompts = _check(evidence)
    return sum(
        1
        for record in evidence.steps
        if _decodes(record.plan, prompts)
        and any(_is_prefill(row, prompts) for row in record.plan.rows)
    )


def demand_overlap(found: Overlap) -> None:
    """Raises TPError `bench.overlap` when a run that must overlap did not."""
    if found.chunks < 2 or found.mixed_steps == 0 or found.tokens_meanwhile == 0:
        raise _refused(f"the mixed run shows none: {found}")


def demand_none(found: Overlap, steps: int) -> None:
    """Raises TPError `bench.overlap` when the negative control overlapped.

    steps: the control's `mixed_steps`.
    """
    if not found.is_none or steps:
        raise _refused(f"the negative control overlapped: {found}, {steps} mixed steps")


def _check(evidence: Evidence) -> Mapping[int, int]:
    """Prompt tokens by request id, once plans, ranks and clients are found to agree."""
    prompts: dict[int, int] = {}
    computed: dict[int, int] = {}
    sampled: list[tuple[int, int]] = []
    for record in evidence.steps:
        plan = record.plan
        digest = plan_digest(plan)
        if not record.rank_digests or any(other != digest for other in record.rank_digests):
            raise _refused(f"step {plan.step} is not what the ranks ran")
        prompts |= {admit.request_id: admit.prompt_tokens for admit in plan.admissions}
        for row in plan.rows:
            start = computed.get(row.request_id, 0)
            if row.request_id not in prompts or row.start_position != start:
                raise _refused(f"step {plan.step} does not continue request {row.request_id}")
            computed[row.request_id] = start + len(row.token_ids)
            if row.artifact is not None:
                sampled.append((row.request_id, plan.step))
    if sorted(sampled) != sorted(evidence.tokens):
        raise _refused("the tokens that clients got are not those that the plans sampled")
    return prompts


def _is_prefill(row: Row, prompts: Mapping[int, int]) -> bool:
    """By position, not by length: a chunk of one token is still a chunk."""
    return bool(row.token_ids) and row.start_position < prompts[row.request_id]


def _decodes(plan: StepPlan, prompts: Mapping[int, int]) -> list[Row]:
    return [row for row in plan.rows if row.token_ids and not _is_prefill(row, prompts)]


def _refused(what: str) -> TPError:
    return TPError("bench.overlap", what)
