"""Percentiles by nearest rank, and measures from times that are known."""

from __future__ import annotations

import json

import pytest

from tools.bench.serve_client import DONE, LEFT, Answer
from tools.bench.serve_report import percentile, report_of, to_json


def event(value: dict[str, object]) -> bytes:
    return b"data: " + json.dumps(value).encode("ascii")


def text(word: str) -> bytes:
    return event({"choices": [{"text": word}]})


USAGE = event({"choices": [], "usage": {"completion_tokens": 3}})
ROLE = event({"choices": [{"delta": {"role": "assistant"}}]})


def test_percentile() -> None:
    values = list(range(1, 101))
    assert [percentile(values, point) for point in (50, 90, 95, 99, 100)] == [50, 90, 95, 99, 100]
    assert percentile([5.0], 99) == 5.0
    assert percentile([2.0, 1.0], 50) == 1.0


def test_measures() -> None:
    whole = Answer("short", 1.0, 1.5, 4.0, end=DONE)
    # A role is no token, and what is due before it is sent counts from then.
    whole.events = [(1.6, ROLE), (2.0, text("a")), (2.5, text("b")), (3.5, text("c")), (3.9, USAGE)]
    left = Answer("short", 1.25, 1.25, 5.0, [(2.0, text("a"))], LEFT)
    found = report_of("closed", 2, [whole, left], DONE, 0)
    milliseconds = found.milliseconds
    assert milliseconds["short", "TTFT"][99] == pytest.approx(1000)
    assert milliseconds["short", "E2E"][50] == pytest.approx(3000)
    assert milliseconds["short", "ITL"][50] == pytest.approx(500)
    assert milliseconds["short", "ITL"][99] == pytest.approx(1000)
    assert (found.seconds, found.completion_tokens, found.errors) == (4.0, 3, 0)
    (entry,) = json.loads(json.dumps(to_json([found]), allow_nan=False))
    assert entry["milliseconds"]["short TTFT"]["p50"] == pytest.approx(1000)
    assert entry["ends"] == {DONE: 1, LEFT: 1}
