"""As http_soak_test.py, with what ten requests a second make in half an hour."""

from __future__ import annotations

from coordinator.gates.http_serving import http_serving
from coordinator.gates.http_soak import soak

COUNT = 18_000


def test_half_an_hour_leaves_nothing() -> None:
    with http_serving(["--max-waiting", "64"]) as service:
        assert sum(soak(service, COUNT, seed=2).values()) == COUNT
        assert service.end()[0] == 0
