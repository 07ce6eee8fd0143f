"""The text before the first stop string, however the text is cut."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.serving.stop_strings import StopStrings

# Few letters, so that strings overlap with themselves and each other.
ALPHABET = "ab\n€😀"
TEXTS = st.text(ALPHABET, max_size=40)
STOPS = st.lists(st.text(ALPHABET, min_size=1, max_size=5), min_size=1, max_size=4)
CUTS = st.lists(st.integers(0, 40), max_size=12)


def reference(text: str, stops: Sequence[str]) -> tuple[str, str | None]:
    """By definition: the shortest beginning of the text that ends with a stop string."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


def streamed(pieces: Sequence[str], stops: Sequence[str]) -> tuple[str, str | None]:
    matcher = StopStrings(stops)
    told = "".join(map(matcher.feed, pieces))
    return told + matcher.flush(), matcher.found


def cut(text: str, cuts: Sequence[int]) -> list[str]:
    places = sorted({0, len(text), *(place for place in cuts if place < len(text))})
    return [text[a:b] for a, b in pairwise(places)]


@given(TEXTS, STOPS, CUTS)
def test_any_cut_gives_the_text_before_the_first_stop(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    expected = reference(text, stops)
    assert streamed(cut(text, cuts), stops) == expected
    assert streamed(list(text), stops) == expected
    assert streamed([text], stops) == expected


@given(TEXTS, st.text(ALPHABET, min_size=1, max_size=5), CUTS)
def test_one_stop_is_found_where_it_first_occurs(text: str, stop: str, cuts: list[int]) -> None:
    before, found, _ = text.partition(stop)
    assert streamed(cut(text, cuts), [stop]) == (before, found or None)


@given(TEXTS, STOPS)
def test_no_more_is_held_back_than_could_become_a_stop(text: str, stops: list[str]) -> None:
    matcher = StopStrings(stops)
    told = ""
    for index, character in enumerate(text):
        told += matcher.feed(character)
        if matcher.found is not None:
            break
        seen = text[: index + 1]
        held = seen[len(told) :]
        assert seen == told + held
        starts = [stop for stop in stops if held and stop.startswith(held)]
        assert not held or starts


@pytest.mark.parametrize(
    ("pieces", "stops", "before"),
    [
        (["ab", "c"], ["bc"], "a"),
        (["a", "a", "a", "b"], ["aab"], "a"),
        (["abcd"], ["abcd", "bc"], "a"),
        (["x\n", "\n"], ["\n\n"], "x"),
        (["x\n", "y"], ["\n\n"], "x\ny"),
        (["x\n"], ["\n\n"], "x\n"),
        (["", ""], ["a"], ""),
        (["😀"], ["😀"], ""),
    ],
)
def test_examples(pieces: list[str], stops: list[str], before: str) -> None:
    assert streamed(pieces, stops)[0] == before


def test_nothing_comes_after_the_stop() -> None:
    matcher = StopStrings(["b"])
    assert matcher.feed("abc") == "a"
    assert matcher.feed("more") == ""
    assert matcher.flush() == ""


def test_the_work_is_linear_in_the_text() -> None:
    """A string that a naive search compares again and again."""
    stop = "a" * 255 + "b"
    matcher = StopStrings([stop])
    assert "".join(matcher.feed("a") for _ in range(20_000)) + matcher.feed("b") == "a" * 19_745
