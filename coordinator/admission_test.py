"""Never, not now, or now."""

from __future__ import annotations

import pytest

from coordinator.admission import fits_now, lifetime_pages, refusal
from coordinator.submission import Submission
from errors import CapacityError, OverloadError
from program.plan import PlanLimits, Sampling

LIMITS = PlanLimits(
    vocab_size=1000,
    context_tokens=1024,
    slots=4,
    pages=10,
    page_tokens=8,
    tokens_per_step=64,
)


def submission(prompt: int, max_tokens: int) -> Submission:
    return Submission((1,) * prompt, max_tokens, Sampling())


@pytest.mark.parametrize(
    ("prompt", "max_tokens", "pages"), [(1, 1, 1), (8, 1, 1), (8, 2, 2), (1, 8, 1), (1, 9, 2)]
)
def test_the_last_sampled_token_needs_no_place(prompt: int, max_tokens: int, pages: int) -> None:
    assert lifetime_pages(submission(prompt, max_tokens), LIMITS) == pages


def test_all_pages_fit_and_one_more_never_does() -> None:
    assert refusal(submission(70, 11), LIMITS, 0, 5) is None
    error = refusal(submission(70, 12), LIMITS, 0, 5)
    assert isinstance(error, CapacityError)
    assert (error.code, error.param, error.http_status) == ("request.capacity", "max_tokens", 400)


def test_a_full_queue_overloads() -> None:
    assert refusal(submission(1, 1), LIMITS, 4, 5) is None
    error = refusal(submission(1, 1), LIMITS, 5, 5)
    assert isinstance(error, OverloadError)
    assert (error.code, error.http_status) == ("overload.queue", 429)


def test_impossible_comes_before_overloaded() -> None:
    assert isinstance(refusal(submission(70, 12), LIMITS, 5, 5), CapacityError)


@pytest.mark.parametrize(
    ("pages", "slots", "free", "fits"),
    [(3, 1, 3, True), (3, 0, 9, False), (3, 1, 2, False), (0, 1, 0, True)],
)
def test_fits_now(pages: int, slots: int, free: int, fits: bool) -> None:
    assert fits_now(pages, slots, free) is fits
