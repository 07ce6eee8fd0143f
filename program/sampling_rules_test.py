"""Each parameter at, below and above its limits."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from program.plan import LOGIT_BIAS_ENTRIES_MAX, Sampling
from program.sampling_rules import sampling_problem

VOCAB = 1000
FULL_BIAS = tuple((i, 0.0) for i in range(LOGIT_BIAS_ENTRIES_MAX + 1))
ALLOWED: list[tuple[str, Any]] = [
    ("temperature", 0.0),
    ("temperature", 5e-324),
    ("temperature", 100.0),
    ("top_p", 5e-324),
    ("top_p", 1.0),
    ("min_p", 0.0),
    ("min_p", 1.0),
    ("repetition_penalty", 0.01),
    ("repetition_penalty", 100.0),
    ("presence_penalty", -2.0),
    ("presence_penalty", 2.0),
    ("frequency_penalty", -2.0),
    ("frequency_penalty", 2.0),
    ("top_k", 0),
    ("top_k", VOCAB),
    ("seed", 0),
    ("seed", 2**64 - 1),
    ("logit_bias", ((0, -100.0), (VOCAB - 1, 100.0))),
    ("logit_bias", FULL_BIAS[:-1]),
]
REFUSED: list[tuple[str, Any]] = [
    ("temperature", -5e-324),
    ("temperature", 100.1),
    ("temperature", math.nan),
    ("temperature", math.inf),
    ("top_p", 0.0),
    ("top_p", 1.0000001),
    ("top_p", math.nan),
    ("min_p", -0.1),
    ("min_p", 1.1),
    ("min_p", -math.inf),
    ("repetition_penalty", 0.0),
    ("repetition_penalty", 100.1),
    ("presence_penalty", -2.1),
    ("presence_penalty", 2.1),
    ("frequency_penalty", -2.1),
    ("frequency_penalty", math.nan),
    ("top_k", -1),
    ("top_k", VOCAB + 1),
    ("seed", -1),
    ("seed", 2**64),
    ("logit_bias", ((-1, 0.0),)),
    ("logit_bias", ((VOCAB, 0.0),)),
    ("logit_bias", ((2, 0.0), (2, 0.0))),
    ("logit_bias", ((2, 0.0), (1, 0.0))),
    ("logit_bias", ((2, 100.1),)),
    ("logit_bias", ((2, math.nan),)),
    ("logit_bias", FULL_BIAS),
]


def test_neutral_values_are_within_their_ranges() -> None:
    assert sampling_problem(Sampling(), 1) is None


@pytest.mark.parametrize(("field", "value"), ALLOWED)
def test_allowed(field: str, value: Any) -> None:
    assert sampling_problem(replace(Sampling(), **{field: value}), VOCAB) is None


@pytest.mark.parametrize(("field", "value"), REFUSED)
def test_refused(field: str, value: Any) -> None:
    problem = sampling_problem(replace(Sampling(), **{field: value}), VOCAB)
    assert problem is not None
    assert problem.parameter == field
