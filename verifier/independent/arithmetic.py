"""The block's arithmetic `exact-1` (program.md B5, B6, A3 to A10), bit for bit."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import tensors
from binary32 import (
    add,
    exact,
    exponential,
    linear,
    multiply,
    padded,
    rounded,
    sums,
    width_for,
)
from block import HEAD_SIZE, HIDDEN, INTERMEDIATE, KV_HEADS, QUERIES_PER_KV, QUERY_HEADS, UNITS
from tensors import Values, to_bytes

_EPS = struct.unpack(">f", bytes.fromhex("358637BD"))[0]
_COS_1, _SIN_1, _SCALE = struct.unpack(
    ">3d", bytes.fromhex("3FE14A280FB5068C3FEAED548F090CEE3FE6A09E667F3BCD")
)


@dataclass(frozen=True)
class Attention:
    """What one rank computes in the attention stage; all `[tokens, local width]` but for scores.

    `scores` and `probability` are `[batch, local query head, query, key]`.
    """

    query: Values
    key: Values
    value: Values
    query_rotated: Values
    key_rotated: Values
    scores: Values
    probability: Values
    mixed: Values
    partial: Values


@dataclass(frozen=True)
class Mlp:
    """What one rank computes in the MLP stage; all `[tokens, local width]`."""

    gate: Values
    up: Values
    gated: Values
    partial: Values


@dataclass(frozen=True)
class Exact:
    """The payloads of a run: partials by phase and rank, and the result."""

    partials: dict[str, tuple[bytes, ...]]
    result: bytes


def normed(x: Values) -> Values:
    """A3: RMSNorm of each token."""
    squares = sums(multiply(x, x), HIDDEN)
    means = rounded(square / HIDDEN for square in squares)
    roots = rounded(math.sqrt(mean) for mean in rounded(mean + _EPS for mean in means))
    return rounded(value / roots[index // HIDDEN] for index, value in enumerate(x))


@lru_cache(maxsize=4)
def rotary(positions: int) -> tuple[Values, Values]:
    """A5: cosines and sines of the first positions, rounded to binary32."""
    cosines, sines = [1.0], [0.0]
    for _ in range(positions - 1):
        c, s = cosines[-1], sines[-1]
        cosines.append(c * _COS_1 - s * _SIN_1)
        sines.append(s * _COS_1 + c * _SIN_1)
    return rounded(cosines), rounded(sines)


def rotated(heads: Values, width: int, sequence: int) -> Values:
    """A5 on `[tokens, width]`: each pair of channels turned by its token's position."""
    cosines, sines = rotary(sequence)
    turned: list[float] = []
    for start in range(0, len(heads), width):
        position = start // width % sequence
        c, s = cosines[position], sines[position]
        evens, odds = heads[start : start + width : 2], heads[start + 1 : start + width : 2]
        ac, bs = rounded(a * c for a in evens), rounded(b * s for b in odds)
        bc, as_ = rounded(b * c for b in odds), rounded(a * s for a in evens)
        firsts = rounded(map(operator.sub, ac, bs))
        for pair in zip(firsts, add(bc, as_), strict=True):
            turned.extend(pair)
    return tuple(turned)


def attention(seed: int, ranks: int, rank: int, x: Values, sequence: int) -> Attention:
    """A6 to A8 for the heads of one rank."""
    tokens = normed(x)
    weights = {name: tensors.local_values(seed, ranks, rank, name) for name in ("wq", "wk", "wv")}
    query, key, value = (linear(weight, tokens, HIDDEN) for weight in weights.values())
    wide, narrow = QUERY_HEADS * HEAD_SIZE // ranks, KV_HEADS * HEAD_SIZE // ranks
    query_rotated = rotated(query, wide, sequence)
    key_rotated = rotated(key, narrow, sequence)
    heads = QUERY_HEADS // ranks
    batch = len(x) // HIDDEN // sequence
    scores: list[float] = []
    probability: list[float] = []
    mixed = [0.0] * len(query)
    for which in range(batch):
        for head in range(heads):
            rows = _scores(query_rotated, key_rotated, which, head, heads, sequence)
            weights_of = [_softmax(row, index) for index, row in enumerate(rows)]
            scores.extend(score for row in rows for score in row)
            probability.extend(each for row in weights_of for each in row)
            _mix(mixed, value, weights_of, which, head, heads)
    output = tensors.local_values(seed, ranks, rank, "wo")
    partial = linear(output, mixed, wide)
    return Attention(
        query,
        key,
        value,
        query_rotated,
        key_rotated,
        tuple(scores),
        tuple(probability),
        tuple(mixed),
        partial,
    )


def _scores(
    query: Values, key: Values, which: int, head: int, heads: int, sequence: int
) -> list[Values]:
    """A6: `[query, key]` of one head of one sequence."""
    wide, narrow = heads * HEAD_SIZE, heads // QUERIES_PER_KV * HEAD_SIZE
    kv = head // QUERIES_PER_KV
    rows = []
    for i in range(sequence):
        at = (which * sequence + i) * wide + head * HEAD_SIZE
        terms: list[float] = []
        for j in range(sequence):
            from_ = (which * sequence + j) * narrow + kv * HEAD_SIZE
            terms.extend((key[from_] * query[at], key[from_ + 1] * query[at + 1]))
        rows.append(tuple(sums(rounded(terms), HEAD_SIZE)))
    return rows


def _softmax(scores: Sequence[float], last: int) -> Values:
    """A7: over the keys up to `last`, in binary64, rounded at the end."""
    greatest = max(scores[: last + 1])
    terms = [exponential((score - greatest) * _SCALE) for score in scores[: last + 1]]
    terms.extend([0.0] * (len(scores) - len(terms)))
    total = sums(padded(terms, len(terms)), width_for(len(terms)), exact)[0]
    return rounded(term / total for term in terms)


def _mix(
    mixed: list[float],
    value: Values,
    probability: Sequence[Values],
    which: int,
    head: int,
    heads: int,
) -> None:
    """A8: writes the mixed vectors of one head of one sequence into `[tokens, local width]`."""
    sequence = len(probability)
    wide, narrow = heads * HEAD_SIZE, heads // QUERIES_PER_KV * HEAD_SIZE
    for channel in range(HEAD_SIZE):
        first = which * sequence * narrow + head // QUERIES_PER_KV * HEAD_SIZE + channel
        column = value[first : first + sequence * narrow : narrow][:sequence]
        terms: list[float] = []
        for row in probability:
            terms.extend(multiply(row, column))
        totals = sums(padded(terms, sequence), width_for(sequence))
        start = which * sequence * wide + head * HEAD_SIZE + channel
        mixed[start : start + sequence * wide : wide] = totals


def silu(gate: float) -> float:
    """A9: in binary64, not yet rounded."""
    return gate / (1.0 + exponential(-gate))


def mlp(seed: int, ranks: int, rank: int, x1: Values) -> Mlp:
    """A9 for the columns of one rank."""
    tokens = normed(x1)
    gate = linear(tensors.local_values(seed, ranks, rank, "w_gate"), tokens, HIDDEN)
    up = linear(tensors.local_values(seed, ranks, rank, "w_up"), tokens, HIDDEN)
    gated = multiply(rounded(map(silu, gate)), up)
    # Each leaf is padded by itself, so rows and vectors are taken as wide as the padded leaves.
    leaf = INTERMEDIATE // UNITS
    down = padded(tensors.local_values(seed, ranks, rank, "w_down"), leaf)
    width = UNITS // ranks * width_for(leaf)
    return Mlp(gate, up, gated, linear(down, padded(gated, leaf), width))


def total(partials: Sequence[Values], order: str) -> Values:
    """B6: the sum over ranks; `partials` are one, two or four."""
    if order == "pairwise":
        pairs = list(partials)
        while len(pairs) > 1:
            pairs = [add(*pairs[at : at + 2]) for at in range(0, len(pairs), 2)]
        return pairs[0]
    summed = partials[0]
    for partial in partials[1:]:
        summed = add(summed, partial)
    return summed


def reduce_partials(partials: Sequence[bytes], order: str) -> bytes | None:
    """The payload of a REDUCTION from those of the PARTIALs, or None where there is no sum.

    There is none for payloads of different or odd length, or beyond the range of binary32.
    """
    lengths = {len(partial) for partial in partials}
    if len(lengths) != 1 or lengths.pop() % 4:
        return None
    try:
        return to_bytes(total([tensors.from_bytes(partial) for partial in partials], order))
    except OverflowError:
        return None


@lru_cache(maxsize=16)
def _first_partials(seed: int, ranks: int, batch: int, sequence: int) -> tuple[Values, ...]:
    """Partials of the attention stage, which both sum orders share."""
    x = tensors.operand_values(seed, batch * sequence)
    return tuple(attention(seed, ranks, rank, x, sequence).partial for rank in range(ranks))


@lru_cache(maxsize=16)
def run(seed: int, ranks: int, batch: int, sequence: int, order: str) -> Exact:
    """A whole run from its seed."""
    x = tensors.operand_values(seed, batch * sequence)
    first = _first_partials(seed, ranks, batch, sequence)
    x1 = add(x, total(first, order))
    second = tuple(mlp(seed, ranks, rank, x1).partial for rank in range(ranks))
    y = add(x1, total(second, order))
    return Exact(
        {
            "attention": tuple(map(to_bytes, first)),
            "mlp": tuple(map(to_bytes, second)),
        },
        to_bytes(y),
    )
