"""Each check lets pass what is right, and fails for every planted fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from coordinator.gates.http_checks import (
    RSS_GROWTH_BYTES,
    THREADS_GROWTH,
    Footprint,
    demand_broken_off,
    demand_complete,
    demand_flat,
)
from coordinator.gates.http_serving import DONE


def token(reason: str | None = None) -> dict[str, Any]:
    return {"choices": [{"text": "a", "finish_reason": reason}]}


ERROR = {"error": {"code": "protocol.closed", "rank": 1}}

BROKEN_OFF = {
    "complete": [token(), token("length"), DONE],
    "done after the error": [token(), ERROR, DONE],
    "done before the error": [token(), DONE, ERROR],
    "two errors": [token(), ERROR, ERROR],
    "cut off": [token(), token()],
    "tokens after the error": [ERROR, token()],
    "a reason to finish": [token("length"), ERROR],
    "nothing": [],
}


def test_broken_off() -> None:
    assert demand_broken_off([token(), ERROR]) == ERROR["error"]
    assert demand_broken_off([ERROR]) == ERROR["error"]


@pytest.mark.parametrize("events", BROKEN_OFF.values(), ids=BROKEN_OFF)
def test_not_broken_off(events: list[Any]) -> None:
    with pytest.raises(AssertionError):
        demand_broken_off(events)


COMPLETE = {
    "broken off": [token(), ERROR],
    "no done": [token(), token("length")],
    "done twice": [token("length"), DONE, DONE],
    "no reason": [token(), DONE],
    "another reason": [token("stop"), DONE],
    "two reasons": [token("length"), token("length"), DONE],
    "an error": [token("length"), ERROR, DONE],
    "done too early": [token("length"), DONE, token()],
    "nothing": [],
}


def test_complete() -> None:
    demand_complete([token(), token("length"), {"choices": [], "usage": {}}, DONE], "length")


@pytest.mark.parametrize("events", COMPLETE.values(), ids=COMPLETE)
def test_not_complete(events: list[Any]) -> None:
    with pytest.raises(AssertionError):
        demand_complete(events, "length")


BEFORE = Footprint((100, 200), (10, 5), (4, 1))
GROWN = {
    "memory of a rank": replace(BEFORE, resident_bytes=(100, 201 + RSS_GROWTH_BYTES)),
    "a descriptor": replace(BEFORE, descriptors=(11, 5)),
    "threads": replace(BEFORE, threads=(4, 2 + THREADS_GROWTH)),
    "a descriptor less": replace(BEFORE, descriptors=(9, 5)),
}


def test_flat() -> None:
    demand_flat(BEFORE, BEFORE)
    demand_flat(BEFORE, replace(BEFORE, resident_bytes=(0, 200 + RSS_GROWTH_BYTES)))
    demand_flat(BEFORE, replace(BEFORE, threads=(3, 1 + THREADS_GROWTH)))


@pytest.mark.parametrize("after", GROWN.values(), ids=GROWN)
def test_not_flat(after: Footprint) -> None:
    with pytest.raises(AssertionError):
        demand_flat(BEFORE, after)
