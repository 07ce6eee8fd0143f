"""Restarts: how many, how long before, and what a window forgets."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from coordinator.serving.restarts import (
    FIRST_DELAY_MS,
    RESTARTS_MAX,
    WINDOW_S,
    RestartPolicy,
    Restarts,
)


def test_exit_never_restarts() -> None:
    restarts = Restarts(RestartPolicy.EXIT)
    assert restarts.after_failure(0.0) is None
    assert restarts.count == 0


def test_a_fault_that_repeats_ends_it() -> None:
    restarts = Restarts(RestartPolicy.ON_FAILURE)
    delays = [restarts.after_failure(float(second)) for second in range(RESTARTS_MAX)]
    assert delays == [FIRST_DELAY_MS / 1000 * 2**n for n in range(RESTARTS_MAX)]
    assert restarts.after_failure(float(RESTARTS_MAX)) is None
    assert restarts.count == RESTARTS_MAX


def test_a_window_forgets() -> None:
    restarts = Restarts(RestartPolicy.ON_FAILURE)
    for _ in range(RESTARTS_MAX):
        restarts.after_failure(0.0)
    assert restarts.after_failure(WINDOW_S - 0.001) is None
    assert restarts.after_failure(WINDOW_S) == FIRST_DELAY_MS / 1000
    assert restarts.count == RESTARTS_MAX + 1


@given(st.lists(st.floats(0.0, WINDOW_S), max_size=60))
def test_no_window_has_more(gaps: list[float]) -> None:
    restarts, now, granted = Restarts(RestartPolicy.ON_FAILURE), 0.0, list[float]()
    for gap in gaps:
        now += gap
        if restarts.after_failure(now) is not None:
            granted.append(now)
    for moment in granted:
        assert sum(moment - WINDOW_S < other <= moment for other in granted) <= RESTARTS_MAX
