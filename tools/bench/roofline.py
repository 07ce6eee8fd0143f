"""Decoding one request against the speed of memory: what a step reads, and what it could take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tools.bench.sample import Sample, table


@dataclass(frozen=True)
class Reader:
    """Who decodes one token in `seconds`, reading `weight_bytes` of weights once."""

    name: str
    weight_bytes: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes per second."""
        return self.weight_bytes / self.seconds


def roofline(bandwidth: Sample, threads: int, readers: Sequence[Reader]) -> str:
    """Markdown. bandwidth: bytes per second that a matrix-vector product reads from memory."""
    low, median, high = (f"{v / 1e9:.1f}" for v in (bandwidth.p10, bandwidth.median, bandwidth.p90))
    rows = [
        [
            reader.name,
            f"{reader.weight_bytes / 2**20:.0f}",
            f"{reader.seconds:.3f}",
            f"{reader.rate / 1e9:.1f}",
            f"{reader.rate / bandwidth.median:.0%}",
            f"{reader.weight_bytes / bandwidth.median:.3f}",
        ]
        for reader in readers
    ]
    head = ["decode, batch 1", "MiB of weights per step", "median s", "GB/s", "of the roofline"]
    return (
        f"memory gives a matrix-vector product of {threads} threads {median} GB/s "
        f"({low} to {high})\n\n{table([*head, 'least s'], rows)}"
    )
