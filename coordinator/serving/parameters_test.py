"""Lengths, defaults and seeds. What is refused, and how, is in api_refusals_test.py."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.admission import lifetime_pages
from coordinator.serving.api_options import ApiOptions
from coordinator.serving.completion_body import parse_completion
from coordinator.serving.fake_served import LIMITS
from coordinator.serving.fields import Fields
from coordinator.serving.parameters import Common, submission_of, take_common
from coordinator.submission import Submission
from errors import RequestError
from program.plan import PlanLimits


def common(**body: object) -> Common:
    fields = Fields(body)
    taken = take_common(fields, LIMITS, None)
    fields.end()
    return taken


def submission(
    taken: Common, prompt: int = 3, limits: PlanLimits = LIMITS, default: int = 16
) -> Submission:
    return submission_of(
        taken,
        [1] * prompt,
        "prompt",
        limits,
        default_tokens=default,
        eos_token_ids=(0, 7),
        draw=lambda bits: 2**bits - 1,
    )


@pytest.mark.parametrize(
    ("prompt", "default", "expected"), [(3, 16, 16), (1020, 16, 4), (1023, 16, 1), (1, 5000, 1023)]
)
def test_the_default_length_fits_the_context(prompt: int, default: int, expected: int) -> None:
    assert submission(common(), prompt, default=default).max_tokens == expected


@given(st.integers(1, 60), st.integers(1, 5), st.integers(1, 16), st.integers(1, 200))
def test_the_default_length_fits_the_memory_if_anything_does(
    prompt: int, pages: int, page_tokens: int, default: int
) -> None:
    limits = replace(LIMITS, pages=pages, page_tokens=page_tokens)
    made = submission(common(), prompt, limits, default)
    assert 1 <= made.max_tokens <= default
    if prompt <= pages * page_tokens:
        assert lifetime_pages(made, limits) <= pages


def test_a_prompt_that_leaves_no_room() -> None:
    for prompt in (0, 1024):
        with pytest.raises(RequestError) as refusal:
            submission(common(), prompt)
        assert refusal.value.param == "prompt"


def test_a_length_beyond_the_context_names_the_parameter_that_gave_it() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        taken = common(**{name: 1022})
        assert submission(taken, 2).max_tokens == 1022
        with pytest.raises(RequestError) as refusal:
            submission(taken, 3)
        assert (refusal.value.code, refusal.value.param) == ("request.context", name)


def test_seeds() -> None:
    assert submission(common()).sampling.seed == 2**63 - 1
    assert submission(common(seed=5)).sampling.seed == 5
    assert submission(common(temperature=0)).sampling.seed == 0
    assert submission(common()).sampling.temperature == 1.0


def test_ends() -> None:
    assert submission(common()).stop_token_ids == {0, 7}
    assert submission(common(stop_token_ids=[3])).stop_token_ids == {0, 3, 7}
    assert submission(common(stop_token_ids=[3], ignore_eos=True)).stop_token_ids == {3}
    assert common(stop=["a", "b", "a"]).stop == ("a", "b")
    assert common(stop="a").stop == ("a",)


@given(
    st.dictionaries(
        st.sampled_from(
            ["prompt", "max_tokens", "stop", "seed", "stream", "logit_bias", "n", "echo", "x"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
            max_leaves=6,
        ),
    )
)
def test_any_body_is_read_or_refused_by_name(body: dict[str, object]) -> None:
    refused = None
    try:
        parsed = parse_completion(body, "m", LIMITS, ApiOptions())
        for prompt in parsed.prompts:
            submission(parsed.common, len(prompt))
    except RequestError as refusal:
        refused = refusal
    assert refused is None or refused.param in refused.message
