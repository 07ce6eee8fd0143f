"""The share of the roofline follows from bytes, seconds and bandwidth alone."""

from __future__ import annotations

from tools.bench.roofline import Reader, roofline
from tools.bench.sample import Sample


def test_share() -> None:
    reader = Reader("ours", 1 << 30, 0.05)
    text = roofline(Sample(2 * reader.rate, reader.rate, 3 * reader.rate, 9), 2, [reader])
    assert "of 2 threads 42.9 GB/s (21.5 to 64.4)" in text
    assert "| ours | 1024 | 0.050 | 21.5 | 50% | 0.025 |" in text.splitlines()
