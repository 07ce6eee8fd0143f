"""Vectors of docs/spec/tensors.md, from the oracle's own generator."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator
from typing import Any

from oracle.block import WEIGHT_SHAPES, name_hash, seeded_values, stream_key
from testdata.vectors.vector_file import VectorFile

NOTES = {
    "SeedLimit": "A seed that JSON numbers of other languages would round (T3).",
    "Prefix": "Element i depends on i alone: a short x is the beginning of a long one (T4, T6).",
    "Whole": "A whole tensor, before it is cut over ranks.",
}
WEIGHT_EXPONENT, INPUT_EXPONENT = -25, -27
SEED_MAX = 2**53 - 1


def tensor_vectors() -> VectorFile:
    """All of them; `first_bytes` and `sha256` are of the little-endian float32 values."""
    return VectorFile(
        "Elements of seeded tensors. integers are before scaling by 2^exponent; first_bytes and "
        "sha256 are of the little-endian float32 values; key and name_hash are hexadecimal.",
        NOTES,
        [*_valid(), *_refused()],
    )


def _valid() -> Iterator[dict[str, Any]]:
    for name, (out, fan_in) in WEIGHT_SHAPES.items():
        yield _vector(f"{name}-seed-1", "Whole", 1, name, out * fan_in, WEIGHT_EXPONENT)
    yield _vector("wq-seed-0", "Whole", 0, "wq", 256, WEIGHT_EXPONENT)
    yield _vector("x-seed-1-one-token", "Prefix", 1, "x", 16, INPUT_EXPONENT)
    yield _vector("x-seed-1", "Prefix", 1, "x", 224, INPUT_EXPONENT)
    yield _vector("x-seed-0", "SeedLimit", 0, "x", 16, INPUT_EXPONENT)
    yield _vector("x-seed-max", "SeedLimit", SEED_MAX, "x", 16, INPUT_EXPONENT)


def _vector(
    identifier: str, flag: str, seed: int, name: str, count: int, exponent: int
) -> dict[str, Any]:
    values = seeded_values(seed, name, count, exponent)
    integers = [int(value * 2**-exponent) for value in values]
    data = struct.pack(f"<{count}f", *values)
    return {
        "id": identifier,
        "comment": f"{count} elements of {name}, seed {seed}",
        "flags": [flag],
        "seed": seed,
        "tensor": name,
        "count": count,
        "exponent": exponent,
        "result": "valid",
        "name_hash": f"{name_hash(name):016x}",
        "key": f"{stream_key(seed, name):016x}",
        "first_integers": integers[:4],
        "last_integer": integers[-1],
        "first_bytes": data[:16].hex(),
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def _refused() -> Iterator[dict[str, Any]]:
    for identifier, seed in (("seed-negative", -1), ("seed-too-large", SEED_MAX + 1)):
        yield {
            "id": identifier,
            "comment": f"seed {seed} is outside T3",
            "flags": ["SeedLimit"],
            "seed": seed,
            "tensor": "x",
            "count": 16,
            "exponent": INPUT_EXPONENT,
            "result": "invalid",
            "code": "config.invalid",
        }
