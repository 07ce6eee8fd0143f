"""The text of an answer: the same for every way of telling it, whole characters, nothing lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.request import Finished, Outcome, Token
from coordinator.serving.api_server import TINY
from coordinator.serving.generation import Generation
from coordinator.serving.text import ModelText
from coordinator.submission import Submission
from program.plan import Sampling

TEXT = ModelText.load(TINY)
EOS = 0
IDS = st.lists(st.integers(1, 1023), max_size=25)
STOPS = st.lists(st.text("abc e\n\ufffd€", min_size=1, max_size=3), max_size=3)


def generation(
    stops: Sequence[str] = (), logprobs: int | None = None, stop_token_ids: Sequence[int] = (EOS,)
) -> Generation:
    submission = Submission((1,), 99, Sampling(), frozenset(stop_token_ids), logprobs)
    return Generation(TEXT, submission, stops)


def tell(subject: Generation, ids: Sequence[int], outcome: Outcome = Outcome.LENGTH) -> list[str]:
    """What every update adds, as a front end would ask for it."""
    told = [subject.begin().text]
    for index, token_id in enumerate(ids):
        told.append(subject.feed(Token(0, index, index, token_id, -1.0, ())).text)
        if subject.stopped:
            break
    told.append(subject.finish(Finished(0, outcome, 1, 1, len(ids))).text)
    assert "".join(told) == subject.text
    return told


@given(IDS)
def test_the_text_is_that_of_all_tokens_at_once(ids: list[int]) -> None:
    subject = generation()
    assert "".join(tell(subject, ids)) == TEXT.decode(ids)
    assert subject.completion_tokens == len(ids)
    assert subject.finish_reason == "length"


@given(IDS, STOPS)
def test_stop_strings_over_any_tokens(ids: list[int], stops: list[str]) -> None:
    whole = TEXT.decode(ids)
    before = [
        whole[: end - len(stop)]
        for end in range(len(whole) + 1)
        for stop in sorted(stops, key=len, reverse=True)
        if whole[:end].endswith(stop)
    ]
    subject = generation(stops)
    assert "".join(tell(subject, ids)) == (before[0] if before else whole)
    assert subject.finish_reason == ("stop" if before else "length")


@given(IDS)
def test_no_character_is_told_in_parts(ids: list[int]) -> None:
    """What is told before the end is a beginning of what the text will be."""
    whole = TEXT.decode(ids)
    told = ""
    for piece in tell(generation(), ids):
        told += piece
        assert whole.startswith(told)


def test_the_stop_token_is_no_text_but_counts() -> None:
    ids = TEXT.encode("ab")
    subject = generation(stop_token_ids=[ids[-1]])
    tell(subject, ids, Outcome.STOP)
    assert subject.text == TEXT.decode(ids[:-1])
    assert (subject.completion_tokens, subject.finish_reason) == (len(ids), "stop")


def test_what_was_held_back_is_told_at_the_end() -> None:
    ids = TEXT.encode("one STO")
    subject = generation(["STOP"])
    told = tell(subject, ids)
    assert "".join(told) == "one STO"
    assert told[-1] == "STO"


def test_the_end_that_a_stop_string_asked_for() -> None:
    """Whatever the engine's own reason was by then."""
    subject = generation(["b"])
    tell(subject, TEXT.encode("abc"), Outcome.LENGTH)
    assert (subject.text, subject.finish_reason) == ("a", "stop")


@pytest.mark.parametrize("stops", [(), ("zzz",)])
def test_records_have_one_entry_per_token(stops: Sequence[str]) -> None:
    ids = [*TEXT.encode("é😀!"), EOS]
    subject = generation(stops, logprobs=0)
    tell(subject, ids, Outcome.STOP)
    assert [record.token.token_id for record in subject.records] == ids
    # Two bytes of é, four of the emoji, the mark and the end.
    assert [record.text_offset for record in subject.records] == [0, 0, 1, 1, 1, 1, 2, 3]


def test_a_delta_says_that_a_stop_string_is_complete() -> None:
    subject = generation(["ab"])
    first, second, *_ = [*TEXT.encode("a"), *TEXT.encode("b")]
    assert not subject.feed(Token(0, 0, 0, first, None, ())).stops
    assert subject.feed(Token(0, 1, 1, second, None, ())).stops
