"""The Chrome trace opens in strict and in lenient readers, and its lanes nest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.serving.chrome_trace import ChromeTrace
from coordinator.serving.fake_steps import observed

SECOND = 1_000_000.0


def events_of(path: Path) -> list[dict[str, Any]]:
    events = json.loads(path.read_text("ascii"))
    assert isinstance(events, list)
    return events


def written(path: Path, steps: int = 3) -> list[dict[str, Any]]:
    trace = ChromeTrace(path, origin=0.0)
    for number in range(steps):
        assert trace.write(1, observed(number))
    trace.close()
    return events_of(path)


def test_a_lane_for_each_rank_and_one_for_the_coordinator(tmp_path: Path) -> None:
    events = written(tmp_path / "c.json")
    names = {
        event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"
    }
    assert names == {0: "coordinator", 1: "rank 0", 2: "rank 1"}
    kinds = {
        lane: {event["cat"] for event in events if event["ph"] == "X" and event["tid"] == lane}
        for lane in names
    }
    assert kinds[0] == {"step", "reduce"}
    assert kinds[1] == kinds[2] == {"step", "compute", "wait", "wire"}


def test_lanes_nest(tmp_path: Path) -> None:
    """Whoever begins within another ends within it, as the viewer demands."""
    events = [event for event in written(tmp_path / "c.json", steps=5) if event["ph"] == "X"]
    for lane in range(3):
        open_until: list[float] = []
        own = [event for event in events if event["tid"] == lane]
        for event in sorted(own, key=lambda one: (one["ts"], -one["dur"])):
            end = event["ts"] + event["dur"]
            while open_until and open_until[-1] <= event["ts"]:
                open_until.pop()
            assert not open_until or end <= open_until[-1]
            assert event["dur"] >= 0
            open_until.append(end)
        assert sum(event["cat"] == "step" for event in own) == 5
        spans = sum(event["dur"] for event in own if event["cat"] != "step")
        assert spans == (5 * SECOND if lane == 0 else 5 * 10 * SECOND)


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_killed_service_leaves_a_file_that_opens(tmp_path: Path, steps: int) -> None:
    """The viewers take an array without its end; a strict reader needs the one bracket only."""
    path = tmp_path / "c.json"
    trace = ChromeTrace(path, origin=0.0)
    for number in range(steps):
        trace.write(1, observed(number))
    torn = path.read_text("ascii")
    if steps:
        found = json.loads(torn + "]")
        assert sum(event.get("cat") == "step" for event in found) == 3 * steps
    trace.close()
    assert len(events_of(path)) == (len(json.loads(torn + "]")) if steps else 0)


def test_every_group_has_its_own_lanes(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    trace = ChromeTrace(path, origin=0.0)
    for epoch in (1, 1, 5):
        trace.write(epoch, observed(0))
    trace.close()
    groups = [event["pid"] for event in events_of(path) if event["name"] == "process_name"]
    assert groups == [1, 5]


def test_a_full_file_takes_no_more_and_still_ends(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    trace = ChromeTrace(path, origin=0.0, bytes_max=6_000)
    taken = [trace.write(1, observed(number)) for number in range(10)]
    trace.close()
    assert taken[0]
    assert not taken[-1]
    assert path.stat().st_size <= 6_000
    steps = [event for event in events_of(path) if event.get("cat") == "step"]
    assert len(steps) == 3 * sum(taken)
