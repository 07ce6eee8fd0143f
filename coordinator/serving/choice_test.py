"""When things happened to one prompt's request, and how its end is told."""

from __future__ import annotations

import pytest

from coordinator.request import Finished, Outcome, Token
from coordinator.serving.api_server import TINY
from coordinator.serving.choice import Choice, error_of
from coordinator.serving.generation import Generation
from coordinator.serving.text import ModelText
from coordinator.submission import Submission
from errors import MisuseError, OverloadError
from program.plan import Sampling

TEXT = ModelText.load(TINY)


def choice(temperature: float = 0.0) -> Choice:
    submission = Submission((1, 2), 9, Sampling(temperature=temperature, seed=5))
    return Choice(0, submission, Generation(TEXT, submission), 10.0)


def told(subject: Choice, *times: float) -> dict[str, object]:
    for index, at in enumerate(times):
        subject.generation.feed(Token(0, index, index, 1, None, ()))
        subject.count(at)
    return subject.timings()


def test_timings() -> None:
    subject = choice(0.5)
    subject.admitted = 10.25
    assert told(subject, 10.5, 10.75, 11.5) == {
        "queue_ms": 250.0,
        "prefill_ms": 250.0,
        "ttft_ms": 500.0,
        "decode_ms": 1000.0,
        "decode_ms_per_token": 500.0,
        "token_ms": [500.0, 750.0, 1500.0],
        "seed": 5,
    }


def test_one_greedy_token() -> None:
    timings = told(choice(), 10.5)
    assert (timings["decode_ms"], timings["decode_ms_per_token"]) == (0.0, None)
    assert timings["seed"] is None


def test_a_look_at_the_queue_that_came_after_the_first_token() -> None:
    """The token was published before the look, and arrives after it: no time is negative."""
    subject = choice()
    subject.admitted = 10.75
    timings = told(subject, 10.5)
    assert (timings["queue_ms"], timings["prefill_ms"]) == (500.0, 0.0)


def test_nothing_came() -> None:
    with pytest.raises(MisuseError):
        choice().timings()


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (Outcome.STOP, None),
        (Outcome.LENGTH, None),
        (Outcome.CANCELLED, "request.cancelled"),
        (Outcome.DISCONNECTED, "request.cancelled"),
        (Outcome.DROPPED, "request.dropped"),
    ],
)
def test_ends(outcome: Outcome, code: str | None) -> None:
    error = error_of(Finished(0, outcome, 1, 1, 1))
    assert (None if error is None else error.code) == code


def test_an_end_with_its_own_error() -> None:
    error = OverloadError("overload.queue", "full")
    assert error_of(Finished(0, Outcome.REJECTED, None, 1, 0, error)) is error
