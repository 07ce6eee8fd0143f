"""The range of every sampling parameter: one table for the client's mistakes and for the plan's.

The coordinator asks before it accepts a request (a RequestError naming the parameter), a rank asks
again before it obeys a plan (a ContractError). It must not know who asks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from program.plan import LOGIT_BIAS_ENTRIES_MAX, SEED_MAX, Sampling

BIAS_LIMIT: Final = 100.0


@dataclass(frozen=True, slots=True)
class SamplingProblem:
    """A parameter outside its range: its name, the value as given and the rule it breaks."""

    parameter: str
    value: object
    rule: str


@dataclass(frozen=True, slots=True)
class Range:
    """low <= value <= high; an open low end excludes `low` itself."""

    low: float
    high: float
    open_low: bool = False

    def holds(self, value: float) -> bool:
        return math.isfinite(value) and (
            self.low < value <= self.high if self.open_low else self.low <= value <= self.high
        )

    def rule(self) -> str:
        low = f"above {self.low:g}" if self.open_low else f"at least {self.low:g}"
        return f"must be {low} and at most {self.high:g}"


# The limits of temperature and repetition_penalty keep every intermediate value finite; those of
# the other parameters are the ones their definitions give.
REAL_RANGES: Final[dict[str, Range]] = {
    "temperature": Range(0.0, 100.0),
    "top_p": Range(0.0, 1.0, open_low=True),
    "min_p": Range(0.0, 1.0),
    "repetition_penalty": Range(0.01, 100.0),
    "presence_penalty": Range(-2.0, 2.0),
    "frequency_penalty": Range(-2.0, 2.0),
}


def sampling_problem(sampling: Sampling, vocab_size: int) -> SamplingProblem | None:
    """The first parameter outside its range, in the order of the fields; None when all fit."""
    for name, allowed in REAL_RANGES.items():
        value = getattr(sampling, name)
        if not allowed.holds(value):
            return SamplingProblem(name, value, allowed.rule())
    if not 0 <= sampling.top_k <= vocab_size:
        rule = f"must be 0 (off) or at most the vocabulary's {vocab_size}"
        return SamplingProblem("top_k", sampling.top_k, rule)
    if not 0 <= sampling.seed <= SEED_MAX:
        return SamplingProblem("seed", sampling.seed, "must be at least 0 and below 2^64")
    return _logit_bias_problem(sampling.logit_bias, vocab_size)


def _logit_bias_problem(
    entries: tuple[tuple[int, float], ...], vocab_size: int
) -> SamplingProblem | None:
    name = "logit_bias"
    if len(entries) > LOGIT_BIAS_ENTRIES_MAX:
        rule = f"must have at most {LOGIT_BIAS_ENTRIES_MAX} entries"
        return SamplingProblem(name, len(entries), rule)
    previous = -1
    for token_id, bias in entries:
        if not 0 <= token_id < vocab_size:
            rule = f"must name token ids of at least 0 and below {vocab_size}"
            return SamplingProblem(name, token_id, rule)
        if token_id <= previous:
            return SamplingProblem(name, token_id, "must name each token id once, ascending")
        if not Range(-BIAS_LIMIT, BIAS_LIMIT).holds(bias):
            rule = f"must have biases of at least -{BIAS_LIMIT:g} and at most {BIAS_LIMIT:g}"
            return SamplingProblem(name, bias, rule)
        previous = token_id
    return None
