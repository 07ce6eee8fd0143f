"""A server under load of every kind is, in the end, as it was after the first of it."""

from __future__ import annotations

from collections import Counter
from typing import Final

from coordinator.gates.http_checks import demand_flat, footprint
from coordinator.gates.http_load import ALL, load
from coordinator.gates.http_serving import HttpServing
from coordinator.process_table import wait_until

# Until pools have their threads and buffers their size.
WARM_UP: Final = 200


def soak(service: HttpServing, count: int, seed: int, warm_up: int = WARM_UP) -> Counter[str]:
    """How `count` requests ended. Raises AssertionError for anything that is left behind."""
    pids = [service.process.pid, *service.pids()]
    expected = service.text()
    load(service, ALL, warm_up, seed)
    _demand_settled(service, expected)
    before = footprint(pids)
    ends = load(service, ALL, count, seed + 1)
    _demand_settled(service, expected)
    demand_flat(before, footprint(pids))
    return ends


def _demand_settled(service: HttpServing, expected: str) -> None:
    """Nothing lives, and the canary is what it was."""
    if not wait_until(service.is_idle):
        raise AssertionError("requests, slots or pages are left")
    if service.text() != expected:
        raise AssertionError("the canary differs")
    if not service.ready()["ok"]:
        raise AssertionError("it is not ready any more")
