"""The frozen decoder block once more, in binary64 with the standard library alone: what is true.

Written from docs/spec/tensors.md and docs/spec/program.md, and importing nothing of this
repository, so that a fault of the runtime can't hide here. It regenerates every tensor itself,
computes the whole block without ranks, and judges an output by two errors.

    y = x1 + Wdown (SiLU(Wgate n(x1)) * Wup n(x1)),   x1 = x + Wo Attention(n(x)),   n = RMSNorm
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

# Gates: an output beyond either fails. float32 arithmetic lands near 1e-7.
MAX_ABS_GATE: Final = 2e-5
RELATIVE_L2_GATE: Final = 2e-5
# Within the gates, but not what float32 arithmetic gives: something is wrong all the same.
ALARM: Final = 1e-6

HIDDEN = 16
QUERY_HEADS = 8
KV_HEADS = 4
HEAD_DIM = 2
INTERMEDIATE = 24
RMS_EPS = 1e-6
ROTARY_BASE = 10000.0
SCORE_SCALE = 1.0 / math.sqrt(HEAD_DIM)

WEIGHT_SHAPES: Final = {
    "wq": (QUERY_HEADS * HEAD_DIM, HIDDEN),
    "wk": (KV_HEADS * HEAD_DIM, HIDDEN),
    "wv": (KV_HEADS * HEAD_DIM, HIDDEN),
    "wo": (HIDDEN, QUERY_HEADS * HEAD_DIM),
    "w_gate": (INTERMEDIATE, HIDDEN),
    "w_up": (INTERMEDIATE, HIDDEN),
    "w_down": (HIDDEN, INTERMEDIATE),
}

Vector = list[float]
Matrix = list[Vector]


@dataclass(frozen=True)
class Judgement:
    """How far an output is from the truth.

    max_abs_error: largest |output - reference|. relative_l2_error: |output - reference| over
    |reference|, Euclidean. An element that is not finite makes both infinite.
    """

    max_abs_error: float
    relative_l2_error: float

    @property
    def passed(self) -> bool:
        """Both errors are within their gates."""
        return self.max_abs_error <= MAX_ABS_GATE and self.relative_l2_error <= RELATIVE_L2_GATE

    @property
    def alarm(self) -> bool:
        """An error is larger than float32 arithmetic explains."""
        return not (self.max_abs_error <= ALARM and self.relative_l2_error <= ALARM)


def judge(output_bytes: bytes, seed: int, batch: int, sequence: int) -> Judgement:
    """Compares an output, little-endian float32 [batch, sequence, hidden], with the reference.

    Raises ValueError when the number of bytes is not that of the shape.
    """
    expected = reference(seed, batch, sequence)
    if len(output_bytes) != 4 * len(expected):
        raise ValueError(f"output has {len(output_bytes)} bytes, the shape {4 * len(expected)}")
    output = struct.unpack(f"<{len(expected)}f", output_bytes)
    if not all(map(math.isfinite, output)):
        return Judgement(math.inf, math.inf)
    differences = [a - b for a, b in zip(output, expected, strict=True)]
    return Judgement(max(map(abs, differences)), _norm(differences) / _norm(expected))


@lru_cache(maxsize=256)
def _cached_reference(seed: int, batch: int, sequence: int) -> tuple[float, ...]:
    return tuple(block(input_tensor(seed, batch, sequence), weights(seed)))


def reference(seed: int, batch: int, sequence: int) -> list[float]:
    """The block's true output, flat in C order [batch, sequence, hidden]."""
    return list(_cached_reference(seed, batch, sequence))


def input_tensor(seed: int, batch: int, sequence: int) -> list[Matrix]:
    """The operand x: [batch][sequence][hidden]."""
    if batch < 1 or sequence < 1:
        raise ValueError(f"batch {batch} and sequence {sequence} must be at least 1")
    flat = seeded_values(seed, "x", batch * sequence * HIDDEN, -27)
    rows = _rows(flat, HIDDEN)
    return [rows[first : first + sequence] for first in range(0, len(rows), sequence)]


def weights(seed: int) -> dict[str, Matrix]:
    """The seven weights, each [out][in]."""
    return {
        name: _rows(seeded_values(seed, name, out * fan_in, -25), fan_in)
        for name, (out, fan_in) in WEIGHT_SHAPES.items()
    }


def seeded_values(seed: int, name: str, count: int, exponent: int) -> Vector:
    """Elements of a seeded tensor: 24-bit integers, counted from -2^23, times 2^exponent."""
    key = stream_key(seed, name)
    return [
        math.ldexp((_mix((key + (i + 1) * 0x9E3779B97F4A7C15) % 2**64) >> 40) - 2**23, exponent)
        for i in range(count)
    ]


def stream_key(seed: int, name: str) -> int:
    """Where a tensor's counter starts. Raises ValueError for a seed out of range."""
    if not 0 <= seed < 2**53:
        raise ValueError(f"seed {seed} must be at least 0 and below 2^53")
    return _mix(_mix(seed) ^ name_hash(name))


def name_hash(name: str) -> int:
    """64-bit FNV-1a."""
    value = 14695981039346656037
    for character in name:
        value = (value ^ ord(character)) * 1099511628211 % 2**64
    return value


def _mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
    return z ^ z >> 31


def block(x: list[Matrix], w: dict[str, Matrix]) -> Vector:
    """The decoder block on x [batch][sequence][hidden]; flat output."""
    output: Vector = []
    for tokens in x:
        attended = attention([rms_norm(token) for token in tokens], w)
        for token, mixed in zip(tokens, attended, strict=True):
            middle = _add(token, apply(w["wo"], mixed))
            output += _add(middle, mlp(rms_norm(middle), w))
    return output


def rms_norm(token: Vector) -> Vector:
    """RMSNorm without weights."""
    root = math.sqrt(math.fsum(v * v for v in token) / len(token) + RMS_EPS)
    return [v / root for v in token]


def attention(normed: Matrix, w: dict[str, Matrix]) -> Matrix:
    """Causal grouped-query attention of one sequence, before the output projection."""
    query, key = (
        [rotate_heads(apply(w[name], token), position) for position, token in enumerate(normed)]
        for name in ("wq", "wk")
    )
    value = [_rows(apply(w["wv"], token), HEAD_DIM) for token in normed]
    return [
        [
            channel
            for head in range(QUERY_HEADS)
            for channel in attend(query, key, value, position, head)
        ]
        for position in range(len(normed))
    ]


def attend(
    query: list[Matrix], key: list[Matrix], value: list[Matrix], position: int, head: int
) -> Vector:
    """One query head at one position: softmax over the visible keys, then their values' mean."""
    kv = kv_head_of(head)
    seen = visible_keys(position, len(key))
    scores = [_dot(query[position][head], key[j][kv]) * SCORE_SCALE for j in seen]
    highest = max(scores)
    powers = [math.exp(score - highest) for score in scores]
    total = math.fsum(powers)
    return [
        math.fsum(p * value[j][kv][d] for p, j in zip(powers, seen, strict=True)) / total
        for d in range(HEAD_DIM)
    ]


def kv_head_of(head: int) -> int:
    """The KV head that a query head reads: consecutive query heads share one."""
    return head // (QUERY_HEADS // KV_HEADS)


def visible_keys(position: int, length: int) -> range:
    """Causal: a query sees its own position and those before it."""
    return range(min(position + 1, length))


def rotate_heads(flat: Vector, position: int) -> Matrix:
    """Splits into heads and turns each by its position; the halves of a head are the pairs."""
    half = HEAD_DIM // 2
    turned = []
    for head in _rows(flat, HEAD_DIM):
        angles = [position * ROTARY_BASE ** (-2 * i / HEAD_DIM) for i in range(half)]
        pairs = list(zip(head[:half], head[half:], angles, strict=True))
        first = [a * math.cos(t) - b * math.sin(t) for a, b, t in pairs]
        turned.append(first + [b * math.cos(t) + a * math.sin(t) for a, b, t in pairs])
    return turned


def mlp(normed: Vector, w: dict[str, Matrix]) -> Vector:
    """SwiGLU."""
    gate, up = apply(w["w_gate"], normed), apply(w["w_up"], normed)
    return apply(w["w_down"], [silu(g) * u for g, u in zip(gate, up, strict=True)])


def silu(g: float) -> float:
    """g times the logistic function of g."""
    return g / (1.0 + math.exp(-g))


def apply(weight: Matrix, vector: Vector) -> Vector:
    """weight [out][in] times vector [in]."""
    return [_dot(row, vector) for row in weight]


def _dot(a: Vector, b: Vector) -> float:
    return math.fsum(map(float.__mul__, a, b))


def _add(a: Vector, b: Vector) -> Vector:
    return [p + q for p, q in zip(a, b, strict=True)]


def _rows(flat: Vector, width: int) -> Matrix:
    return [flat[first : first + width] for first in range(0, len(flat), width)]


def _norm(values: list[float]) -> float:
    return math.sqrt(math.fsum(v * v for v in values))
