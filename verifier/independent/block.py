"""The block as a program (program.md P2, B1 to B4): weights, cuts, digest, payload bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

import canonical

NAME = "block"
PHASES = ("attention", "mlp")
HIDDEN = 16
QUERY_HEADS, KV_HEADS, HEAD_SIZE = 8, 4, 2
INTERMEDIATE = 24
# Every cut is along units, which are also the leaves of B5: a KV head with its query heads, or six
# columns of the MLP.
UNITS = 4
QUERIES_PER_KV = QUERY_HEADS // KV_HEADS


@dataclass(frozen=True)
class Weight:
    """A weight `[rows, columns]`, cut along `axis` (0 is the rule `rows`, 1 `columns`)."""

    name: str
    rows: int
    columns: int
    axis: int

    def local_shape(self, ranks: int) -> tuple[int, int]:
        rows = self.rows // ranks if self.axis == 0 else self.rows
        columns = self.columns // ranks if self.axis == 1 else self.columns
        return rows, columns


WEIGHTS = (
    Weight("wq", QUERY_HEADS * HEAD_SIZE, HIDDEN, 0),
    Weight("wk", KV_HEADS * HEAD_SIZE, HIDDEN, 0),
    Weight("wv", KV_HEADS * HEAD_SIZE, HIDDEN, 0),
    Weight("wo", HIDDEN, QUERY_HEADS * HEAD_SIZE, 1),
    Weight("w_gate", INTERMEDIATE, HIDDEN, 0),
    Weight("w_up", INTERMEDIATE, HIDDEN, 0),
    Weight("w_down", HIDDEN, INTERMEDIATE, 1),
)


def local_shapes(ranks: int) -> list[tuple[str, tuple[int, int]]]:
    """Name and rank-local shape of each weight, in the order they travel."""
    return [(weight.name, weight.local_shape(ranks)) for weight in WEIGHTS]


@lru_cache(maxsize=8)
def digest(ranks: int) -> str:
    """`program_digest` for a world size (P2)."""
    weights = [
        {
            "name": weight.name,
            "rule": ["columns" if weight.axis else "rows", UNITS],
            "shape": [weight.rows, weight.columns],
        }
        for weight in WEIGHTS
    ]
    program = {
        "arithmetic": "exact-1",
        "artifact_ranks": list(range(ranks)),
        "folded": False,
        "hidden_size": HIDDEN,
        "loading": "wire",
        "name": NAME,
        "partial_dtype": "<f4",
        "stages": list(PHASES),
        "state": [],
        "weights": weights,
        "world_size": ranks,
    }
    return hashlib.sha256(canonical.encode(program)).hexdigest()


def payload_bytes(ranks: int, batch: int, sequence: int) -> int:
    """B4: 4 R (E + 6 B T H), in bytes."""
    elements = sum(rows * columns for _, (rows, columns) in local_shapes(ranks))
    return 4 * ranks * (elements + 6 * batch * sequence * HIDDEN)
