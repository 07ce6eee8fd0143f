"""Every parameter of a request: what is accepted, and which name a refusal carries."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.submission import (
    LOGPROBS_MAX,
    PARAMETERS,
    STOP_TOKEN_IDS_MAX,
    Submission,
    parse_submission,
)
from errors import RequestError
from program.plan import LOGIT_BIAS_ENTRIES_MAX, PlanLimits, Sampling

LIMITS = PlanLimits(
    vocab_size=1000,
    context_tokens=64,
    slots=4,
    pages=32,
    page_tokens=8,
    tokens_per_step=64,
)
SMALLEST: dict[str, Any] = {"prompt_token_ids": [1, 2], "max_tokens": 3}
HUGE = 10**5000

REFUSED: list[tuple[str, Any, str]] = [
    ("prompt_token_ids", [], "request.range"),
    ("prompt_token_ids", None, "request.type"),
    ("prompt_token_ids", "1,2", "request.type"),
    ("prompt_token_ids", {"0": 1}, "request.type"),
    ("prompt_token_ids", [True], "request.type"),
    ("prompt_token_ids", [1.0], "request.type"),
    ("prompt_token_ids", ["1"], "request.type"),
    ("prompt_token_ids", [[1]], "request.type"),
    ("prompt_token_ids", [None], "request.type"),
    ("prompt_token_ids", [math.nan], "request.type"),
    ("prompt_token_ids", [-1], "request.range"),
    ("prompt_token_ids", [1000], "request.range"),
    ("prompt_token_ids", [HUGE], "request.range"),
    ("prompt_token_ids", [1] * 65, "request.range"),
    ("max_tokens", 0, "request.range"),
    ("max_tokens", -1, "request.range"),
    ("max_tokens", 65, "request.range"),
    ("max_tokens", HUGE, "request.range"),
    ("max_tokens", True, "request.type"),
    ("max_tokens", 2.0, "request.type"),
    ("max_tokens", "2", "request.type"),
    ("max_tokens", None, "request.type"),
    ("max_tokens", 63, "request.context"),
    ("stop_token_ids", None, "request.type"),
    ("stop_token_ids", [False], "request.type"),
    ("stop_token_ids", [1000], "request.range"),
    ("stop_token_ids", [1] * (STOP_TOKEN_IDS_MAX + 1), "request.range"),
    ("logprobs", True, "request.type"),
    ("logprobs", -1, "request.range"),
    ("logprobs", LOGPROBS_MAX + 1, "request.range"),
    ("logprobs", 1.0, "request.type"),
    ("prefix_reuse", True, "request.unsupported"),
    ("prefix_reuse", None, "request.type"),
    ("prefix_reuse", 1, "request.type"),
    ("temperature", -0.1, "request.range"),
    ("temperature", 101, "request.range"),
    ("temperature", math.nan, "request.type"),
    ("temperature", math.inf, "request.type"),
    ("temperature", True, "request.type"),
    ("temperature", "1", "request.type"),
    ("temperature", None, "request.type"),
    ("temperature", HUGE, "request.type"),
    ("top_p", 0, "request.range"),
    ("top_p", 1.01, "request.range"),
    ("min_p", -0.1, "request.range"),
    ("min_p", 1.1, "request.range"),
    ("repetition_penalty", 0, "request.range"),
    ("presence_penalty", 2.1, "request.range"),
    ("frequency_penalty", -2.1, "request.range"),
    ("top_k", -1, "request.range"),
    ("top_k", 1001, "request.range"),
    ("top_k", 1.0, "request.type"),
    ("top_k", False, "request.type"),
    ("seed", -1, "request.range"),
    ("seed", 2**64, "request.range"),
    ("seed", 1.0, "request.type"),
    ("seed", None, "request.type"),
    ("logit_bias", [], "request.type"),
    ("logit_bias", None, "request.type"),
    ("logit_bias", {"1000": 1}, "request.range"),
    ("logit_bias", {"-1": 1}, "request.type"),
    ("logit_bias", {"01": 1}, "request.type"),
    ("logit_bias", {"1.0": 1}, "request.type"),
    ("logit_bias", {" 1": 1}, "request.type"),
    ("logit_bias", {"\u0661": 1}, "request.type"),
    ("logit_bias", {"9" * 5000: 1}, "request.type"),
    ("logit_bias", {"": 1}, "request.type"),
    ("logit_bias", {1: 1}, "request.type"),
    ("logit_bias", {"1": 101}, "request.range"),
    ("logit_bias", {"1": math.nan}, "request.type"),
    ("logit_bias", {"1": True}, "request.type"),
    ("logit_bias", {"1": None}, "request.type"),
    (
        "logit_bias",
        {str(i): 0 for i in range(LOGIT_BIAS_ENTRIES_MAX + 1)},
        "request.range",
    ),
]


def test_the_smallest_request_is_greedy_and_neutral() -> None:
    assert parse_submission(SMALLEST, LIMITS) == Submission((1, 2), 3, Sampling())


def test_the_largest_request() -> None:
    parameters = {
        "prompt_token_ids": [0, 999],
        "max_tokens": 62,
        "stop_token_ids": [5, 5, 7],
        "logprobs": LOGPROBS_MAX,
        "prefix_reuse": False,
        "temperature": 2,
        "top_k": 1000,
        "top_p": 0.5,
        "min_p": 1,
        "repetition_penalty": 1.5,
        "presence_penalty": -2,
        "frequency_penalty": 2,
        "seed": 2**64 - 1,
        "logit_bias": {"999": -100, "0": 0.5},
    }
    assert set(parameters) == PARAMETERS
    submission = parse_submission(parameters, LIMITS)
    assert submission == Submission(
        prompt_token_ids=(0, 999),
        max_tokens=62,
        sampling=Sampling(
            temperature=2.0,
            top_k=1000,
            top_p=0.5,
            min_p=1.0,
            repetition_penalty=1.5,
            presence_penalty=-2.0,
            frequency_penalty=2.0,
            logit_bias=((0, 0.5), (999, -100.0)),
            seed=2**64 - 1,
        ),
        stop_token_ids=frozenset({5, 7}),
        logprobs=LOGPROBS_MAX,
    )
    assert submission.tokens_max == 63


@pytest.mark.parametrize(("name", "value", "code"), REFUSED, ids=range(len(REFUSED)))
def test_refused(name: str, value: Any, code: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_submission({**SMALLEST, name: value}, LIMITS)
    assert (caught.value.code, caught.value.param) == (code, name)
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("name", ["prompt_token_ids", "max_tokens"])
def test_required(name: str) -> None:
    parameters = {key: value for key, value in SMALLEST.items() if key != name}
    with pytest.raises(RequestError) as caught:
        parse_submission(parameters, LIMITS)
    assert (caught.value.code, caught.value.param) == ("request.missing", name)


def test_a_temperature_needs_a_seed() -> None:
    with pytest.raises(RequestError) as caught:
        parse_submission({**SMALLEST, "temperature": 0.5}, LIMITS)
    assert (caught.value.code, caught.value.param) == ("request.missing", "seed")
    assert parse_submission({**SMALLEST, "temperature": 0.5, "seed": 0}, LIMITS).sampling.seed == 0


@pytest.mark.parametrize("name", ["best_of", "Temperature", "prompt", "n", "", "cache_prompt"])
def test_unknown_parameters_are_refused_not_ignored(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_submission({**SMALLEST, name: 1}, LIMITS)
    assert (caught.value.code, caught.value.param) == ("request.unknown", name)


def test_an_absent_and_a_null_logprobs_are_the_same() -> None:
    assert parse_submission({**SMALLEST, "logprobs": None}, LIMITS).logprobs is None
    assert parse_submission({**SMALLEST, "logprobs": 0}, LIMITS).logprobs == 0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(sorted(PARAMETERS)) | st.text(max_size=6), JSON))
def test_anything_is_either_a_valid_request_or_a_named_refusal(parameters: dict[str, Any]) -> None:
    refused_param = None
    try:
        submission = parse_submission({**SMALLEST, **parameters}, LIMITS)
    except RequestError as error:
        refused_param = error.param
    if refused_param is not None:
        assert refused_param in {*parameters, "seed", "max_tokens"}
        return
    assert len(submission.prompt_token_ids) + submission.max_tokens <= LIMITS.context_tokens
