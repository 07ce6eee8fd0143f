"""Requests of every kind by many clients: memory, descriptors and threads stay as they are."""

from __future__ import annotations

import pytest

from coordinator.gates.http_mutants import leaks
from coordinator.gates.http_serving import http_serving, planted
from coordinator.gates.http_soak import WARM_UP, soak

# Requests to be counted, and those before them.
QUICK = (40, 60)
WHOLE = (200, WARM_UP)


@pytest.mark.exhaustive
def test_a_leak_is_noticed() -> None:
    with planted(leaks), http_serving() as service:
        soak(service, 30, seed=1)
        # A server that is left running would be noticed too, and hide that the leak was not.
        service.end()


@pytest.mark.parametrize(
    ("count", "warm_up"), [QUICK, pytest.param(*WHOLE, marks=pytest.mark.exhaustive)]
)
def test_a_load_leaves_nothing(count: int, warm_up: int) -> None:
    with http_serving(["--max-waiting", "64"]) as service:
        ends = soak(service, count, seed=1, warm_up=warm_up)
        assert sum(ends.values()) == count
        assert {"complete", "stop", "left", "deleted", "mistake", "looked"} <= set(ends)
        assert service.end()[0] == 0
