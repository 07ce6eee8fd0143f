"""The measurement runs, and its numbers are those of memory and not of an empty loop."""

from __future__ import annotations

from tools.bench.bandwidth import read_bandwidth


def test_bytes_per_second() -> None:
    found = read_bandwidth(threads=2, repeats=2)
    assert len(found) == 2
    # From a tenth of the slowest memory in use to far above the fastest.
    assert all(1e8 < value < 1e13 for value in found)
