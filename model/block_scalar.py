"""The block's arithmetic one number at a time: the reference beside the fast path.

What a worker in another language would write from docs/spec/program.md (A1 to A10), with the
standard library alone: every binary32 operation is done in binary64 and rounded, which gives the
correctly rounded binary32 result (53 >= 2 x 24 + 2 digits). Slow; for tests and for check values.
Finite numbers only. Tensors are nested lists in C order.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Vector = list[float]
Matrix = list[Vector]

_FLOAT = struct.Struct("<f")
EPS = _FLOAT.unpack(bytes.fromhex("bd378635"))[0]
SCORE_SCALE = float.fromhex("0x1.6a09e667f3bcdp-1")
COS_1 = float.fromhex("0x1.14a280fb5068cp-1")
SIN_1 = float.fromhex("0x1.aed548f090ceep-1")


def f32(value: float) -> float:
    """A1: the nearest binary32, ties to even."""
    rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return rounded


def pairwise(terms: Sequence[float], rounding: Callable[[float], float] = f32) -> float:
    """A2: pad with +0 to a power of two, then add neighbours until one number is left."""
    level = list(terms)
    level += [0.0] * ((1 << (len(level) - 1).bit_length()) - len(level))
    while len(level) > 1:
        level = [rounding(level[i] + level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]


def dot(weight: Sequence[float], x: Sequence[float]) -> float:
    """A2."""
    return pairwise([f32(a * b) for a, b in zip(x, weight, strict=True)])


def linear(weight: Matrix, x: Sequence[float]) -> Vector:
    """A2: weight [out][in], x [in]."""
    return [dot(row, x) for row in weight]


def leaf_linear(weight: Matrix, x: Sequence[float], leaf_columns: int) -> Vector:
    """A2 and B5: each leaf of columns is summed by itself, then the leaves are."""
    return [
        pairwise(
            [
                dot(row[first : first + leaf_columns], x[first : first + leaf_columns])
                for first in range(0, len(x), leaf_columns)
            ]
        )
        for row in weight
    ]


def rms_norm(x: Sequence[float]) -> Vector:
    """A3."""
    mean = f32(pairwise([f32(v * v) for v in x]) / len(x))
    root = f32(math.sqrt(f32(mean + EPS)))
    return [f32(v / root) for v in x]


def exponential(x: float) -> float:
    """A4, in binary64."""
    s = min(max(x, -150.0), 150.0) * 2.0**-16
    p = s * (1.0 / 24.0)
    for coefficient in (1.0 / 6.0, 0.5, 1.0):
        p = (p + coefficient) * s
    p = p + 1.0
    for _ in range(16):
        p = p * p
    return p


def angle(position: int) -> tuple[float, float]:
    """A5: binary32 cosine and sine of a position."""
    cosine, sine = 1.0, 0.0
    for _ in range(position):
        cosine, sine = cosine * COS_1 - sine * SIN_1, sine * COS_1 + cosine * SIN_1
    return f32(cosine), f32(sine)


def rotate(heads: Sequence[float], position: int) -> Vector:
    """A5: heads of two channels, flat."""
    cosine, sine = angle(position)
    turned = []
    for a, b in zip(heads[0::2], heads[1::2], strict=True):
        turned.append(f32(f32(a * cosine) - f32(b * sine)))
        turned.append(f32(f32(b * cosine) + f32(a * sine)))
    return turned


def probabilities(scores: Sequence[float], position: int) -> Vector:
    """A7: over the keys up to `position`; later keys get +0."""
    highest = max(scores[: position + 1])
    powers = [
        exponential((score - highest) * SCORE_SCALE) if key <= position else 0.0
        for key, score in enumerate(scores)
    ]
    total = pairwise(powers, float)
    return [f32(power / total) for power in powers]


def silu(gate: float) -> float:
    """A9."""
    return f32(gate / (1.0 + exponential(-gate)))


def attention_stage(x: list[Matrix], shards: Mapping[str, Matrix]) -> dict[str, list[Any]]:
    """A3 to A8 on x [batch][sequence][hidden]: every tensor by name, the last one `partial`."""
    steps: dict[str, list[Any]] = {}
    for tokens in x:
        normed = [rms_norm(token) for token in tokens]
        query = [linear(shards["wq"], token) for token in normed]
        key = [linear(shards["wk"], token) for token in normed]
        value = [linear(shards["wv"], token) for token in normed]
        turned_query = [rotate(heads, position) for position, heads in enumerate(query)]
        turned_key = [rotate(heads, position) for position, heads in enumerate(key)]
        scores, probability = _weighting(turned_query, turned_key)
        mixed = _mix(probability, value)
        named = {
            "normed": normed,
            "query": query,
            "key": key,
            "value": value,
            "query_rotated": turned_query,
            "key_rotated": turned_key,
            "scores": scores,
            "probability": probability,
            "mixed": mixed,
            "partial": [leaf_linear(shards["wo"], token, 4) for token in mixed],
        }
        for name, tensor in named.items():
            steps.setdefault(name, []).append(tensor)
    return steps


def _weighting(query: Matrix, key: Matrix) -> tuple[list[Matrix], list[Matrix]]:
    """A6 and A7: scores and probabilities, each [query head][query][key]."""
    scores, probability = [], []
    for head in range(len(query[0]) // 2):
        kv = head // 2
        table = [
            [dot(k[2 * kv : 2 * kv + 2], q[2 * head : 2 * head + 2]) for k in key] for q in query
        ]
        scores.append(table)
        probability.append([probabilities(row, position) for position, row in enumerate(table)])
    return scores, probability


def _mix(probability: list[Matrix], value: Matrix) -> Matrix:
    """A8: [token][2 * query head + channel]."""
    return [
        [
            pairwise(
                [
                    f32(p * v[2 * (head // 2) + channel])
                    for p, v in zip(table[i], value, strict=True)
                ]
            )
            for head, table in enumerate(probability)
            for channel in range(2)
        ]
        for i in range(len(value))
    ]


def mlp_stage(x1: list[Matrix], shards: Mapping[str, Matrix]) -> dict[str, list[Any]]:
    """A3 and A9 on x1 [batch][sequence][hidden]: every tensor by name, the last one `partial`."""
    steps: dict[str, list[Any]] = {}
    for tokens in x1:
        normed = [rms_norm(token) for token in tokens]
        gate = [linear(shards["w_gate"], token) for token in normed]
        up = [linear(shards["w_up"], token) for token in normed]
        gated = [
            [f32(silu(g) * u) for g, u in zip(*pair, strict=True)]
            for pair in zip(gate, up, strict=True)
        ]
        partial = [leaf_linear(shards["w_down"], token, 6) for token in gated]
        named = {"normed": normed, "gate": gate, "up": up, "gated": gated, "partial": partial}
        for name, tensor in named.items():
            steps.setdefault(name, []).append(tensor)
    return steps


def add(x: list[Matrix], total: list[Matrix]) -> list[Matrix]:
    """A10: the residual stream after a stage."""
    return [
        [[f32(a + b) for a, b in zip(*rows, strict=True)] for rows in zip(*sequences, strict=True)]
        for sequences in zip(x, total, strict=True)
    ]
