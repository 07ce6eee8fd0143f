"""Statistics against plain Python, over any values; and never more work than agreed."""

from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.serving.fake_steps import VALUES, frame
from coordinator.serving.frame_statistics import FIRST_VALUES, StatisticsBudget, values_json
from wire.frame import Kind, Side
from wire.recorder import Record

FLOATS = st.floats(width=32) | st.sampled_from([0.0, -0.0, 1e38, -1e38])


@given(values=st.lists(FLOATS, min_size=1, max_size=40))
def test_statistics_over_any_values(values: list[float]) -> None:
    found = values_json(array("f", values))
    finite = [value for value in array("f", values) if math.isfinite(value)]
    assert found["zeros"] == sum(value == 0 for value in values)
    assert found["nonfinite"] == len(values) - len(finite)
    first = found["first"]
    assert isinstance(first, list)
    assert len(first) == min(FIRST_VALUES, len(values))
    if not finite:
        assert {found[name] for name in ("min", "max", "mean", "rms")} == {None}
        return
    assert (found["min"], found["max"]) == (min(finite), max(finite))
    mean = math.fsum(value / len(finite) for value in finite)
    rms = math.hypot(*finite) / math.sqrt(len(finite))
    size = max(map(abs, finite))
    assert found["mean"] == pytest.approx(mean, rel=1e-9, abs=1e-9 * size)
    assert found["rms"] == pytest.approx(rms, rel=1e-9)


def test_squares_that_overflow() -> None:
    found = values_json(array("d", [1e300, -1e300]))
    assert (found["mean"], found["rms"]) == (0.0, pytest.approx(1e300))


def test_a_budget_ends() -> None:
    partial = frame(Side.WORKER, 0, Kind.PARTIAL, 3, VALUES)
    budget = StatisticsBudget(values_max=9)
    found = [budget.statistics(partial) is not None for _ in range(3)]
    assert found == [True, True, False]


COMMAND = frame(Side.COORDINATOR, 0, Kind.COMMAND, 3)
PARTIAL = frame(Side.WORKER, 0, Kind.PARTIAL, 3, VALUES)


@pytest.mark.parametrize(
    "record",
    [
        COMMAND,
        PARTIAL._replace(payload=b""),
        PARTIAL._replace(payload=b"1234"),
        PARTIAL._replace(metadata=None),
        PARTIAL._replace(metadata=b"not JSON"),
        PARTIAL._replace(metadata=b"{}"),
        Record(Side.WORKER, 0, PARTIAL.state, "", None, None, b"", "protocol.closed", b"RK"),
    ],
)
def test_frames_without_values(record: Record) -> None:
    assert StatisticsBudget().statistics(record) is None


def test_a_view_of_the_payload_will_do() -> None:
    record = PARTIAL._replace(payload=memoryview(bytes(PARTIAL.payload)))
    assert StatisticsBudget().statistics(record) == StatisticsBudget().statistics(PARTIAL)
