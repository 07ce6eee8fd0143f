"""Medians and spread of repeated measurements."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """Median, fast tenth and slow tenth, in the unit of the measurements."""

    median: float
    p10: float
    p90: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Sample:
        ordered = sorted(values)
        last = len(ordered) - 1
        return cls(
            statistics.median(ordered),
            ordered[round(0.1 * last)],
            ordered[round(0.9 * last)],
            len(ordered),
        )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
