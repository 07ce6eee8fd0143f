"""binary32 arithmetic on lists of Python floats (program.md A1, A2, A4).

Every value is a Python float that binary32 holds exactly. An operation is done in binary64 and
rounded once more by packing: for +, -, x, / and square root that gives the correctly rounded
binary32 result, because 53 >= 2 * 24 + 2 bits.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from tensors import Values

_SIXTH, _TWENTY_FOURTH = 1 / 6, 1 / 24


@lru_cache(maxsize=1024)
def _packer(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}f")


def rounded(numbers: Iterable[float]) -> Values:
    """Each number rounded to the nearest binary32, ties to even.

    Raises:
        OverflowError: a number is beyond the range of binary32.
    """
    listed = tuple(numbers)
    packer = _packer(len(listed))
    return packer.unpack(packer.pack(*listed))


def add(left: Iterable[float], right: Iterable[float]) -> Values:
    return rounded(map(operator.add, left, right))


def multiply(left: Iterable[float], right: Iterable[float]) -> Values:
    return rounded(map(operator.mul, left, right))


def exact(numbers: Iterable[float]) -> Sequence[float]:
    """The rounding of binary64: none, as each operation on Python floats has done it."""
    return tuple(numbers)


def width_for(count: int) -> int:
    """The power of two that A2 pads `count` terms to."""
    return 1 << (count - 1).bit_length()


def sums(
    terms: Sequence[float],
    width: int,
    rounding: Callable[[Iterable[float]], Sequence[float]] = rounded,
) -> Sequence[float]:
    """A2's SUM of each run of `width` terms, all runs level by level; `width` is a power of two."""
    while width > 1:
        terms = rounding(map(operator.add, terms[0::2], terms[1::2]))
        width //= 2
    return terms


def padded(numbers: Sequence[float], count: int) -> list[float]:
    """Each run of `count` numbers followed by the +0 that A2 pads it with."""
    fill = [0.0] * (width_for(count) - count)
    made: list[float] = []
    for start in range(0, len(numbers), count):
        made.extend(numbers[start : start + count])
        made.extend(fill)
    return made


def linear(weight: Sequence[float], vectors: Sequence[float], width: int) -> Values:
    """A2's LINEAR of each run of `width` numbers in `vectors`, as wide as a row of `weight`."""
    rows = len(weight) // width
    terms: list[float] = []
    for start in range(0, len(vectors), width):
        vector = vectors[start : start + width]
        terms.extend(map(operator.mul, weight, list(vector) * rows))
    return tuple(sums(rounded(terms), width))


def exponential(argument: float) -> float:
    """A4, binary64."""
    scaled = min(max(argument, -150.0), 150.0) * 2.0**-16
    power = scaled * _TWENTY_FOURTH
    power = (power + _SIXTH) * scaled
    power = (power + 0.5) * scaled
    power = (power + 1.0) * scaled
    power = power + 1.0
    for _ in range(16):
        power = power * power
    return power
