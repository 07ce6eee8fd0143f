"""Fixed-order arithmetic: the same bytes on any IEEE 754 machine, whatever its BLAS, SIMD or libm.

Only correctly rounded elementwise operations are used (add, subtract, multiply, divide, sqrt,
comparisons, conversions), each result rounded before the next operation reads it, in an order fixed
by docs/spec/program.md (clauses A). It must not know tensor parallelism.

An operation is bound to its arrays when it is constructed and then called without arguments: views
and scratch are made once per shape, because at this size a NumPy call costs more than its work.

Bit-reversed order: a sum that adds neighbours at every level (A2) would read every second element.
Terms are therefore laid out with the bits of their index reversed; then the two neighbours of a
pair are half a buffer apart, and every level is one addition of two contiguous halves.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from errors import MisuseError

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
Float = TypeVar("Float", bound=np.floating)

_LOWEST: Final = np.array(-150.0)
_HIGHEST: Final = np.array(150.0)
_ONE: Final = np.array(1.0)

# exp(x) = P(x / 2^16)^(2^16), P the Taylor polynomial of degree 4 (A4), highest power first.
_SQUARINGS: Final = 16
_SCALE: Final = np.array(2.0**-_SQUARINGS)
_TAYLOR: Final = tuple(np.array(c) for c in (1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0))

# cos(1) and sin(1), correctly rounded (A5).
_COS_1: Final = float.fromhex("0x1.14a280fb5068cp-1")
_SIN_1: Final = float.fromhex("0x1.aed548f090ceep-1")


def padded_width(count: int) -> int:
    """The smallest power of two that is at least `count`."""
    return 1 << (count - 1).bit_length()


def bit_reversed(width: int) -> list[int]:
    """The index that lies at each position of bit-reversed order. width: a power of two."""
    order = [0]
    while len(order) < width:
        order = [2 * index for index in order] + [2 * index + 1 for index in order]
    return order


def bit_axes(array: NDArray[Float]) -> NDArray[Float]:
    """Axis 0, a power of two long, as axes of length 2, most significant bit first. A view."""
    bits = (len(array) - 1).bit_length()
    if len(array) != 1 << bits:
        raise MisuseError(f"a pairwise axis has {len(array)} terms, which is no power of two")
    return array.reshape((2,) * bits + array.shape[1:])


def reversed_bit_axes(array: NDArray[Float]) -> NDArray[Float]:
    """As `bit_axes`, least significant bit first: its C order is bit-reversed order. A view."""
    split = bit_axes(array)
    bits = split.ndim - array.ndim + 1
    return split.transpose(*range(bits - 1, -1, -1), *range(bits, split.ndim))


class PairwiseSum(Generic[Float]):
    """out = balanced pairwise sum over axis 0 of `terms` (A2).

    terms: [width, ...] in bit-reversed order, padded with +0 to a power of two; overwritten unless
    `scratch` [width / 2, ...] is given. out: [...].
    """

    def __init__(
        self, terms: NDArray[Float], out: NDArray[Float], scratch: NDArray[Float] | None = None
    ) -> None:
        workspace = terms if scratch is None else scratch
        self._levels: list[tuple[NDArray[Float], NDArray[Float], NDArray[Float]]] = []
        source, half = terms, len(terms) // 2
        while half > 1:
            target = workspace[:half]
            self._levels.append((source[:half], source[half : 2 * half], target))
            source, half = target, half // 2
        self._last = source
        self._out = out

    def __call__(self) -> None:
        for low, high, target in self._levels:
            np.add(low, high, target)
        if len(self._last) == 1:
            self._out[...] = self._last[0]
        else:
            np.add(self._last[0], self._last[1], self._out)


class Linear:
    """out[m, n] = pairwise sum over k of x[m, k] * weight[n, k] (A2).

    x: [*m, k]; weight: [*n, k]; out: [*m, *n]; k a power of two. Any strides.
    """

    def __init__(self, x: F32, weight: F32, out: F32) -> None:
        rows, columns, depth = x.shape[:-1], weight.shape[:-1], x.shape[-1]
        products = np.empty((depth, *rows, *columns), np.float32)
        activations = reversed_bit_axes(np.moveaxis(x, -1, 0))
        self._x = activations.reshape(activations.shape + (1,) * len(columns))
        terms = np.moveaxis(weight, -1, 0)[bit_reversed(depth)]
        self._weight = bit_axes(terms.reshape((depth,) + (1,) * len(rows) + columns))
        self._products = bit_axes(products)
        self._sum = PairwiseSum(products, out)

    def __call__(self) -> None:
        np.multiply(self._x, self._weight, self._products)
        self._sum()


class RmsNorm:
    """out = x / sqrt(mean(x^2) + eps) over the last axis, without weights (A3).

    x, out: [..., hidden], hidden a power of two. Source: Zhang and Sennrich (arXiv:1910.07467).
    """

    def __init__(self, x: F32, out: F32, eps: float) -> None:
        hidden = x.shape[-1]
        squares = np.empty((hidden, *x.shape[:-1]), np.float32)
        self._x, self._out = x, out
        self._terms = reversed_bit_axes(np.moveaxis(x, -1, 0))
        self._squares = bit_axes(squares)
        self._root = np.empty((*x.shape[:-1], 1), np.float32)
        self._sum = PairwiseSum(squares, self._root[..., 0])
        self._hidden = np.array(hidden, np.float32)
        self._eps = np.array(eps, np.float32)

    def __call__(self) -> None:
        root = self._root
        np.multiply(self._terms, self._terms, self._squares)
        self._sum()
        np.divide(root, self._hidden, root)
        np.add(root, self._eps, root)
        np.sqrt(root, root)
        np.divide(self._x, root, self._out)


class Exponential:
    """out = e^x in binary64 for |x| <= 150 (A4); x is overwritten. Relative error below 2^-36."""

    def __init__(self, x: F64, out: F64) -> None:
        self._x, self._out = x, out

    def __call__(self) -> None:
        x, out = self._x, self._out
        np.multiply(x, _SCALE, x)
        np.multiply(x, _TAYLOR[0], out)
        for coefficient in _TAYLOR[1:-1]:
            np.add(out, coefficient, out)
            np.multiply(out, x, out)
        np.add(out, _TAYLOR[-1], out)
        for _ in range(_SQUARINGS):
            np.multiply(out, out, out)


class SiluGate:
    """out = SiLU(gate) * up, SiLU(g) = g / (1 + e^-g) (A9). All arrays of one shape."""

    def __init__(self, gate: F32, up: F32, out: F32) -> None:
        self._gate, self._up, self._out = gate, up, out
        self._wide = np.empty(gate.shape)
        self._negated = np.empty(gate.shape)
        self._power = np.empty(gate.shape)
        self._exponential = Exponential(self._negated, self._power)

    def __call__(self) -> None:
        wide, negated, power = self._wide, self._negated, self._power
        wide[...] = self._gate
        np.negative(wide, negated)
        np.maximum(negated, _LOWEST, out=negated)
        np.minimum(negated, _HIGHEST, out=negated)
        self._exponential()
        np.add(power, _ONE, power)
        np.divide(wide, power, wide)
        self._out[...] = wide
        np.multiply(self._out, self._up, self._out)


class CausalSoftmax:
    """Attention probabilities of every query over the keys up to its own position (A7).

    scores, out: [keys, ..., queries], keys in bit-reversed order and padded to a power of two; a
    key after the query's position, padding included, gets probability +0. scale: multiplies the
    scores in binary64.
    """

    def __init__(self, scores: F32, out: F32, scale: float) -> None:
        keys, queries = len(scores), scores.shape[-1]
        axes = (keys, *(1,) * (scores.ndim - 2), queries)
        visible = np.array(bit_reversed(keys))[:, None] <= np.arange(queries)
        self._mask = np.where(visible, 0.0, -np.inf).reshape(axes)
        self._visible = np.where(visible, 1.0, 0.0).reshape(axes)
        self._scores, self._out, self._scale = scores, out, np.array(scale)
        self._wide = np.empty(scores.shape)
        self._power = np.empty(scores.shape)
        self._row = np.empty(scores.shape[1:])
        self._exponential = Exponential(self._wide, self._power)
        self._sum = PairwiseSum(self._power, self._row, scratch=self._wide)

    def __call__(self) -> None:
        wide, power, row = self._wide, self._power, self._row
        wide[...] = self._scores
        np.add(wide, self._mask, wide)
        np.maximum.reduce(wide, axis=0, out=row)
        np.subtract(wide, row, wide)
        np.multiply(wide, self._scale, wide)
        # The masked scores are -inf still; limited like the others, they end as +0 below.
        np.maximum(wide, _LOWEST, out=wide)
        self._exponential()
        np.multiply(power, self._visible, power)
        self._sum()
        np.divide(power, row, wide)
        self._out[...] = wide


class Rotary:
    """Turns the two channels of every head by the angle of its position (A5).

    x, out: [2, ..., positions]: channel 0 of all heads, then channel 1. Source: Su et al.
    (arXiv:2104.09864), in the convention that pairs the first half of a head with the second.
    """

    def __init__(self, x: F32, out: F32) -> None:
        cosine, sine = rotary_table(x.shape[-1])
        # a - b and a + (-b) are the same operation, so both channels are one multiply and add.
        signs = np.array((-1.0, 1.0), np.float32)
        self._cosine = cosine
        self._sine = (signs[:, None] * sine).reshape(2, *(1,) * (x.ndim - 2), -1)
        self._x, self._swapped, self._out = x, x[::-1], out
        self._turned = np.empty(x.shape, np.float32)

    def __call__(self) -> None:
        np.multiply(self._x, self._cosine, self._out)
        np.multiply(self._swapped, self._sine, self._turned)
        np.add(self._out, self._turned, self._out)


def rotary_table(positions: int) -> tuple[F32, F32]:
    """cos(p) and sin(p) for p = 0 to positions - 1 (A5), the angles of a head of size 2.

    Each [positions]. The one frequency of such a head is base^0 = 1 for any base. Addition of
    angles in binary64, rounded once; correctly rounded for every position below 512 (tested).
    """
    cosine, sine = 1.0, 0.0
    table = []
    for _ in range(positions):
        table.append((cosine, sine))
        next_cosine = cosine * _COS_1 - sine * _SIN_1
        sine = sine * _COS_1 + cosine * _SIN_1
        cosine = next_cosine
    columns = np.array(table).astype(np.float32).T
    return columns[0].copy(), columns[1].copy()
