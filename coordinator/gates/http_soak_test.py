"""Requests of every kind by many clients: memory, descriptors and threads stay as they are."""

from __future__ import annotations

from coordinator.gates.http_mutants import leaks
from coordinator.gates.http_serving import http_serving, planted
from coordinator.gates.http_soak import soak

COUNT = 200


def test_a_leak_is_noticed() -> None:
    with planted(leaks), http_serving() as service:
        soak(service, 30, seed=1)
        # A server that is left running would be noticed too, and hide that the leak was not.
        service.end()


def test_a_load_leaves_nothing() -> None:
    with http_serving(["--max-waiting", "64"]) as service:
        ends = soak(service, COUNT, seed=1)
        assert sum(ends.values()) == COUNT
        assert {"complete", "stop", "left", "deleted", "mistake", "looked"} <= set(ends)
        assert service.end()[0] == 0
