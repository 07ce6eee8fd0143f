"""Float32 arithmetic in exact steps, for tests that demand a documented order of a sum."""

from __future__ import annotations

import math
from fractions import Fraction


def rounded(exact: Fraction) -> float:
    """The nearest float32, ties to even (no subnormals, no overflow)."""
    if exact == 0:
        return 0.0
    unit = Fraction(2) ** (math.frexp(float(abs(exact)))[1] - 24)
    return float(round(exact / unit) * unit)


def added(first: float, second: float) -> float:
    return rounded(Fraction(first) + Fraction(second))


def multiplied_and_added(first: float, second: float, third: float) -> float:
    """first * second + third, with one rounding."""
    return rounded(Fraction(first) * Fraction(second) + Fraction(third))
