"""Histograms in plain numbers: an observation costs one search, and no lock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

# Upper bounds in seconds, by 1, 2.5, 5 from the fastest phase of a small model to a full deadline.
STEP_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0),
)
# What a client feels: from a token of a small model to a queue that is given up.
LATENCY_S: Final = STEP_S[3:]


class Filled(NamedTuple):
    """bounds: (upper bound as text, observations up to it), rising, the last one "+Inf"."""

    bounds: list[tuple[str, float]]
    total: float


class Buckets:
    """bounds: inclusive upper bounds, rising. One thread adds; any thread may read."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def filled(self) -> Filled:
        """Cumulative, as Prometheus wants it."""
        seen = 0
        bounds: list[tuple[str, float]] = []
        for bound, count in zip((*self._bounds, float("inf")), tuple(self._counts), strict=True):
            seen += count
            bounds.append(("+Inf" if bound == float("inf") else repr(bound), float(seen)))
        return Filled(bounds, self._total)
