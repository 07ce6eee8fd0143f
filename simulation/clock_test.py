"""Virtual time."""

from __future__ import annotations

from simulation.clock import VirtualClock


def test_time_moves_only_when_told_and_never_back() -> None:
    clock = VirtualClock()
    assert clock.now() == 0.0
    clock.advance_to(3.5)
    clock.advance_to(2.0)
    assert clock.now() == 3.5
