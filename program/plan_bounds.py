"""Is a plan within the agreed limits, whatever the slots hold? (docs/spec/plan.md, L9)

Checked before any state is looked at, so a hostile or mistaken plan can't reach an array. The first
broken rule raises ContractError `contract.program` with the place, the value and the rule.
"""

from __future__ import annotations

from collections.abc import Iterable

from errors import ContractError
from program.canonical import canonical_json
from program.plan import (
    ARTIFACT_PAIRS_MAX,
    INTEGER_MAX,
    PLAN_BYTES_MAX,
    TOP_MAX,
    Admit,
    PlanLimits,
    Row,
    Sample,
    Score,
    StepPlan,
    pages_needed,
)
from program.plan_codec import encode_plan
from program.sampling_rules import sampling_problem


def check_bounds(plan: StepPlan, limits: PlanLimits) -> None:
    """Raises ContractError `contract.program` when the plan leaves the limits."""
    _demand(0 <= plan.step <= INTEGER_MAX, "step", plan.step, "must be at least 0 and below 2^53")
    _ascending_slots("releases", (release.slot for release in plan.releases), limits)
    for i, admit in enumerate(plan.admissions):
        _check_admit(f"admissions[{i}]", admit, limits)
    for i, move in enumerate(plan.moves):
        _slot(f"moves[{i}].from_slot", move.from_slot, limits)
        _slot(f"moves[{i}].to_slot", move.to_slot, limits)
    _ascending_slots("rows", (row.slot for row in plan.rows), limits)
    for i, row in enumerate(plan.rows):
        _check_row(f"rows[{i}]", row, limits)
    rule = f"must be at most {limits.tokens_per_step} tokens in all rows"
    _demand(plan.token_count <= limits.tokens_per_step, "rows", plan.token_count, rule)
    pairs = artifact_pairs(plan)
    rule = f"must ask for at most {ARTIFACT_PAIRS_MAX} log-probabilities in all rows"
    _demand(pairs <= ARTIFACT_PAIRS_MAX, "rows", pairs, rule)
    size = len(canonical_json(encode_plan(plan)))
    _demand(size <= PLAN_BYTES_MAX, "plan", size, f"must be at most {PLAN_BYTES_MAX} bytes")


def artifact_pairs(plan: StepPlan) -> int:
    """(token id, log-probability) pairs that the plan's artifacts hold."""
    return sum(row_pairs(row) for row in plan.rows)


def row_pairs(row: Row) -> int:
    """Pairs of one row: the sampled token and its alternatives, or those of every position."""
    match row.artifact:
        case Sample(logprobs):
            return 0 if logprobs is None else 1 + logprobs
        case Score(last, top):
            return last * top
        case None:
            return 0


def _demand(holds: bool, at: str, value: object, rule: str) -> None:
    if not holds:
        raise ContractError("program", f"plan.{at} = {value}: {rule}")


def _slot(at: str, slot: int, limits: PlanLimits) -> None:
    if not 0 <= slot < limits.slots:
        _demand(False, at, slot, f"must be below {limits.slots} slots")


def _ascending_slots(at: str, slots: Iterable[int], limits: PlanLimits) -> None:
    previous = -1
    for slot in slots:
        _slot(at, slot, limits)
        _demand(slot > previous, at, slot, "must name each slot once, ascending")
        previous = slot


def _check_admit(at: str, admit: Admit, limits: PlanLimits) -> None:
    _slot(f"{at}.slot", admit.slot, limits)
    rule = f"must be at least 1 and at most {limits.context_tokens} positions"
    _demand(1 <= admit.tokens_max <= limits.context_tokens, at, admit.tokens_max, rule)
    rule = f"must be at least 1 and at most the {admit.tokens_max} positions"
    _demand(1 <= admit.prompt_tokens <= admit.tokens_max, at, admit.prompt_tokens, rule)
    wanted = pages_needed(admit.tokens_max, limits.page_tokens)
    _demand(len(admit.pages) == wanted, at, len(admit.pages), f"must be {wanted} pages")
    previous = -1
    for page in admit.pages:
        rule = f"must be ascending and below {limits.pages} pages"
        _demand(previous < page < limits.pages, f"{at}.pages", page, rule)
        previous = page
    if admit.sampling is not None:
        problem = sampling_problem(admit.sampling, limits.vocab_size)
        if problem is not None:
            _demand(False, f"{at}.sampling.{problem.parameter}", problem.value, problem.rule)


def _check_row(at: str, row: Row, limits: PlanLimits) -> None:
    outside = [t for t in row.token_ids if not 0 <= t < limits.vocab_size]
    if outside:
        rule = f"must be at least 0 and below the vocabulary's {limits.vocab_size}"
        _demand(False, f"{at}.token_ids", outside[0], rule)
    count = len(row.token_ids)
    top_max = min(TOP_MAX, limits.vocab_size)
    match row.artifact:
        case Sample(logprobs):
            _demand(count > 0, at, count, "must have a token to sample after")
            top = 0 if logprobs is None else logprobs
        case Score(last, top):
            _demand(1 <= last <= count, at, last, f"must score 1 to {count} of its positions")
        case None:
            return
    _demand(0 <= top <= top_max, at, top, f"must ask for at most {top_max} alternatives")
