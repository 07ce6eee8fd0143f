"""Vectors of the block's arithmetic (docs/spec/program.md, A1 to A10)."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from model import block_scalar as scalar
from oracle.block import input_tensor, weights
from testdata.vectors.vector_file import VectorFile

NOTES = {
    "EveryTensor": "All that is computed on the way, so that the first wrong step shows.",
    "Output": "y, the same for 1, 2 and 4 ranks under the sum order pairwise.",
}
STAGES = (
    ("attention", scalar.attention_stage, "x1"),
    ("mlp", scalar.mlp_stage, "y"),
)
BYTES_SHOWN_MAX = 128

Shards = dict[str, scalar.Matrix]


def block_vectors() -> VectorFile:
    """Functions by argument and result, one case with every tensor, and some outputs."""
    outputs = ((0, 1, 1), (1, 2, 7), (3, 1, 4), (2**53 - 1, 2, 5))
    return VectorFile(
        "In functions, numbers are the hexadecimal digits of their IEEE encoding, most significant "
        "first. In vectors, bytes and sha256 are of little-endian float32 values in C order; rank "
        "null: the same on every rank; scores hold every key, also those after the query.",
        NOTES,
        [_every_tensor(1, 1, 2), *(_output(*case) for case in outputs)],
        {"functions": _functions()},
    )


def _functions() -> dict[str, Any]:
    angles = [scalar.angle(position) for position in range(512)]
    table = [cosine for cosine, _ in angles] + [sine for _, sine in angles]
    sums = ([0.1], [0.1, 0.2, 0.3], [1e8, 1.0, -1e8, 1.0, 0.5], [0.1 * k for k in range(1, 8)])
    return {
        "exponential": [
            [_binary64(x), _binary64(scalar.exponential(x))]
            for x in (0.0, -0.5, -1.0, -10.0, -150.0, -1e9, 1.0, 150.0)
        ],
        "pairwise": [
            [
                [_binary32(term) for term in terms],
                _binary32(scalar.pairwise([scalar.f32(term) for term in terms])),
            ]
            for terms in sums
        ],
        "rotary": {
            "cosine_511": _binary32(angles[511][0]),
            "sine_511": _binary32(angles[511][1]),
            "sha256": hashlib.sha256(struct.pack("<1024f", *table)).hexdigest(),
        },
        "silu": [
            [_binary32(g), _binary32(scalar.silu(g))]
            for g in (0.0, 1.0, -1.0, 0.015625, -20.0, 20.0)
        ],
    }


def _every_tensor(seed: int, batch: int, sequence: int) -> dict[str, Any]:
    whole, x = weights(seed), input_tensor(seed, batch, sequence)
    ranks = [_half(whole, rank) for rank in range(2)]
    tensors = [_tensor("input", None, "x", x)]
    for stage, run, after in STAGES:
        results = [run(x, shards) for shards in ranks]
        tensors.append(_tensor(stage, None, "normed", results[0]["normed"]))
        for rank, steps in enumerate(results):
            tensors += [
                _tensor(stage, rank, name, steps[name]) for name in steps if name != "normed"
            ]
        total = scalar.add(results[0]["partial"], results[1]["partial"])
        x = scalar.add(x, total)
        tensors += [_tensor(stage, None, "total", total), _tensor(stage, None, after, x)]
    return {
        "id": f"seed-{seed}-batch-{batch}-sequence-{sequence}-ranks-2",
        "comment": "every tensor on the way, from the input to y",
        "flags": ["EveryTensor"],
        "seed": seed,
        "batch": batch,
        "sequence": sequence,
        "ranks": 2,
        "result": "valid",
        "tensors": tensors,
    }


def _half(whole: Shards, rank: int) -> Shards:
    """Rank 0's or rank 1's half: rows of most weights, columns of wo and w_down (B2)."""
    half: Shards = {}
    for name, matrix in whole.items():
        if name in ("wo", "w_down"):
            width = len(matrix[0]) // 2
            half[name] = [row[rank * width : (rank + 1) * width] for row in matrix]
        else:
            rows = len(matrix) // 2
            half[name] = matrix[rank * rows : (rank + 1) * rows]
    return half


def _output(seed: int, batch: int, sequence: int) -> dict[str, Any]:
    whole, x = weights(seed), input_tensor(seed, batch, sequence)
    for _, run, _ in STAGES:
        x = scalar.add(x, run(x, whole)["partial"])
    return {
        "id": f"y-seed-{seed}-batch-{batch}-sequence-{sequence}",
        "comment": f"the output for seed {seed}, batch {batch}, sequence {sequence}",
        "flags": ["Output"],
        "seed": seed,
        "batch": batch,
        "sequence": sequence,
        "ranks": None,
        "result": "valid",
        "tensors": [_tensor("mlp", None, "y", x)],
    }


def _tensor(stage: str, rank: int | None, name: str, nested: Sequence[Any]) -> dict[str, Any]:
    flat = list(_flat(nested))
    data = struct.pack(f"<{len(flat)}f", *flat)
    return {
        "stage": stage,
        "rank": rank,
        "tensor": name,
        "shape": _shape(nested),
        "bytes": data.hex() if len(data) <= BYTES_SHOWN_MAX else None,
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def _flat(nested: Sequence[Any]) -> Iterator[float]:
    for item in nested:
        if isinstance(item, float):
            yield item
        else:
            yield from _flat(item)


def _shape(nested: Any) -> list[int]:
    return [] if isinstance(nested, float) else [len(nested), *_shape(nested[0])]


def _binary32(value: float) -> str:
    return struct.pack(">f", value).hex()


def _binary64(value: float) -> str:
    return struct.pack(">d", value).hex()
