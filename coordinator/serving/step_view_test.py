"""Steps as JSON: exact keys, sums, and statistics of what travelled."""

from __future__ import annotations

import json
from typing import Any

import pytest

from coordinator.serving.fake_steps import FRAMES, PHASE, observed
from coordinator.serving.step_view import step_json, summary_json
from coordinator.step_timing import ObservedStep
from wire.recorder import Recorder

SECOND = 1_000_000


def shown(step: ObservedStep) -> Any:
    """GET /v1/engine/steps/{n}, as a client has it."""
    return json.loads(json.dumps(step_json(step), allow_nan=False))


def test_a_summary_whose_parts_cover_the_step() -> None:
    rank = {"compute_us": 4 * SECOND, "wait_us": 3 * SECOND, "wire_us": 3 * SECOND}
    assert summary_json(observed(2), 5.0) == {
        "step": 2,
        "at_s": 15.0,
        "duration_us": 10 * SECOND,
        "rows": 2,
        "prefill_tokens": 3,
        "decode_rows": 1,
        "reduce_us": SECOND,
        "ranks": [rank, rank],
    }


def test_spans_count_from_the_start_of_the_step() -> None:
    step = shown(observed(3))
    assert list(step) == ["step", "duration_us", "spans", "frames"]
    assert (step["step"], step["duration_us"]) == (3, 10 * SECOND)
    assert step["spans"][0] == {
        "lane": "coordinator",
        "kind": "reduce",
        "phase": PHASE,
        "start_us": 7 * SECOND,
        "duration_us": SECOND,
    }
    for lane in ("rank 0", "rank 1"):
        at = 0
        for span in step["spans"]:
            if span["lane"] == lane:
                assert span["start_us"] == at
                at += span["duration_us"]
        assert at == 10 * SECOND


def test_frames_with_their_values() -> None:
    found = shown(observed(3))["frames"]
    assert [frame["index"] for frame in found] == list(range(3 * FRAMES, 4 * FRAMES))
    assert [frame["rank"] for frame in found] == [0, 1] * 3
    command, partial = found[0], found[2]
    assert (command["direction"], command["kind"], command["statistics"]) == (
        "send",
        "COMMAND",
        None,
    )
    assert partial == {
        "index": 20,
        "direction": "receive",
        "rank": 0,
        "kind": "PARTIAL",
        "phase": PHASE,
        "tensor": f"{PHASE}.partial",
        "shape": [1, 4],
        "metadata_bytes": partial["metadata_bytes"],
        "payload_bytes": 16,
        "statistics": {
            "min": -1.5,
            "max": 2.5,
            "mean": 0.25,
            "rms": pytest.approx((8.5 / 4) ** 0.5),
            "zeros": 2,
            "nonfinite": 0,
            "first": [0.0, -1.5, 2.5, 0.0],
        },
    }


def test_frames_without_what_was_not_kept() -> None:
    bare = Recorder(keep_bytes=False)
    step = observed(0, bare)
    stripped = tuple(record._replace(payload=b"") for record in step.records)
    partial = shown(observed_with(step, stripped))["frames"][2]
    assert (partial["payload_bytes"], partial["statistics"]) == (16, None)


def observed_with(step: ObservedStep, records: tuple[Any, ...]) -> ObservedStep:
    return ObservedStep(
        **{name: getattr(step, name) for name in ObservedStep.__slots__ if name != "records"},
        records=records,
    )


def test_what_is_not_finite_is_counted_and_never_shown() -> None:
    values = (float("nan"), float("inf"), 1.0)
    found = shown(observed(0, values=values))["frames"][2]["statistics"]
    assert (found["nonfinite"], found["first"], found["max"]) == (2, [None, None, 1.0], 1.0)
