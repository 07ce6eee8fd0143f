"""The block in binary64 (program.md B1): the reference of the errors (evidence.md E7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import tensors
from block import HEAD_SIZE, HIDDEN, INTERMEDIATE, QUERIES_PER_KV, QUERY_HEADS

# The program's eps is a binary32 number (A3); the reference takes the same one.
_EPS = float.fromhex("0x1.0c6f7ap-20")

Vector = list[float]
Matrix = list[Vector]


@lru_cache(maxsize=64)
def block(seed: int, batch: int, sequence: int) -> tuple[float, ...]:
    """The reference output, `[batch, sequence, hidden]` in C order."""
    x = tensors.operand_values(seed, batch * sequence)
    weights = {
        name: _rows(tensors.whole_weight(seed, name), columns)
        for name, columns in (
            ("wq", HIDDEN),
            ("wk", HIDDEN),
            ("wv", HIDDEN),
            ("wo", HIDDEN),
            ("w_gate", HIDDEN),
            ("w_up", HIDDEN),
            ("w_down", INTERMEDIATE),
        )
    }
    output: list[float] = []
    size = sequence * HIDDEN
    for start in range(0, len(x), size):
        for token in _sequence(_rows(x[start : start + size], HIDDEN), weights):
            output.extend(token)
    return tuple(output)


def _rows(values: Sequence[float], width: int) -> Matrix:
    return [list(values[at : at + width]) for at in range(0, len(values), width)]


def _sequence(x: Matrix, weights: dict[str, Matrix]) -> Matrix:
    """One sequence, `[token, hidden]`."""
    mixed = _attention([_normed(token) for token in x], weights)
    x1 = [_plus(token, _times(weights["wo"], heads)) for token, heads in zip(x, mixed, strict=True)]
    return [_plus(token, _mlp(_normed(token), weights)) for token in x1]


def _normed(token: Vector) -> Vector:
    root = math.sqrt(math.fsum(value * value for value in token) / HIDDEN + _EPS)
    return [value / root for value in token]


def _attention(tokens: Matrix, weights: dict[str, Matrix]) -> Matrix:
    """Causal attention over rotated heads of size two: `[token, heads * size]` before `wo`."""
    queries = [_turned(_times(weights["wq"], token), at) for at, token in enumerate(tokens)]
    keys = [_turned(_times(weights["wk"], token), at) for at, token in enumerate(tokens)]
    values = [_times(weights["wv"], token) for token in tokens]
    mixed = []
    for at, query in enumerate(queries):
        made: Vector = []
        for head in range(QUERY_HEADS):
            own = slice(head * HEAD_SIZE, (head + 1) * HEAD_SIZE)
            kv = head // QUERIES_PER_KV
            shared = slice(kv * HEAD_SIZE, (kv + 1) * HEAD_SIZE)
            scores = [_dot(query[own], key[shared]) for key in keys[: at + 1]]
            chances = _softmax([score / math.sqrt(HEAD_SIZE) for score in scores])
            seen = [value[shared] for value in values[: at + 1]]
            made.extend(_dot(chances, list(channel)) for channel in zip(*seen, strict=True))
        mixed.append(made)
    return mixed


def _turned(heads: Vector, position: int) -> Vector:
    """Rotary embedding: each pair of channels turned by `position` radians."""
    cosine, sine = math.cos(position), math.sin(position)
    turned: Vector = []
    for a, b in zip(heads[0::2], heads[1::2], strict=True):
        turned.extend((a * cosine - b * sine, b * cosine + a * sine))
    return turned


def _softmax(scores: Vector) -> Vector:
    greatest = max(scores)
    powers = [math.exp(score - greatest) for score in scores]
    whole = math.fsum(powers)
    return [power / whole for power in powers]


def _mlp(token: Vector, weights: dict[str, Matrix]) -> Vector:
    gates, ups = _times(weights["w_gate"], token), _times(weights["w_up"], token)
    gated = [gate / (1.0 + math.exp(-gate)) * up for gate, up in zip(gates, ups, strict=True)]
    return _times(weights["w_down"], gated)


def _times(matrix: Matrix, vector: Vector) -> Vector:
    return [_dot(row, vector) for row in matrix]


def _dot(left: Vector, right: Vector) -> float:
    return math.fsum(a * b for a, b in zip(left, right, strict=True))


def _plus(left: Vector, right: Vector) -> Vector:
    return [a + b for a, b in zip(left, right, strict=True)]
