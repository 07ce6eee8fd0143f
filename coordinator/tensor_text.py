"""A tensor's values and statistics as text, from its payload alone. No array library."""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_VALUES_PER_LINE: Final = {"<f4": 5, "<f8": 3}
# Enough for every tensor of the default run; a longer one is cut, and the line says so.
VALUES_SHOWN_MAX: Final = 4_096

# Digits that identify a value of the type.
_DIGITS: Final = {"<f4": 9, "<f8": 17}


@dataclass(frozen=True)
class Statistics:
    """Over the finite values; None where there are none. l2: root of the sum of squares."""

    count: int
    nan: int
    infinite: int
    minimum: float | None
    maximum: float | None
    mean: float | None
    l2: float | None


def read_values(payload: bytes, dtype: str) -> array[float] | None:
    """The elements of a little-endian payload; None for a payload that isn't whole elements."""
    if dtype not in _DIGITS:
        return None
    values: array[float] = array("f" if dtype == "<f4" else "d")
    if len(payload) % values.itemsize:
        return None
    values.frombytes(payload)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def statistics(values: array[float]) -> Statistics:
    """Sums are rounded once (math.fsum, math.hypot), so the order of the values is no matter."""
    finite = [value for value in values if math.isfinite(value)]
    nan = sum(1 for value in values if math.isnan(value))
    infinite = len(values) - len(finite) - nan
    if not finite:
        return Statistics(len(values), nan, infinite, None, None, None, None)
    mean = math.fsum(value / len(finite) for value in finite)
    low, high = min(finite), max(finite)
    return Statistics(len(values), nan, infinite, low, high, mean, math.hypot(*finite))


def statistics_line(values: array[float], dtype: str) -> str:
    """One line: count, min, max, mean, l2, NaN and infinite counts."""
    found = statistics(values)
    parts = [f"{found.count} values {dtype}"]
    for name, number in (
        ("min", found.minimum),
        ("max", found.maximum),
        ("mean", found.mean),
        ("l2", found.l2),
    ):
        parts.append(f"{name} {'-' if number is None else format(number, '.6g')}")
    parts.append(f"NaN {found.nan}")
    if found.infinite:
        parts.append(f"infinite {found.infinite}")
    return "  ".join(parts)


def value_lines(values: array[float], dtype: str) -> Iterator[str]:
    """The values with enough digits to read them back, each line with its first flat index."""
    digits = _DIGITS[dtype]
    per_line = _VALUES_PER_LINE[dtype]
    shown = min(len(values), VALUES_SHOWN_MAX)
    for start in range(0, shown, per_line):
        row = values[start : min(start + per_line, shown)]
        cells = "".join(f" {value:>{digits + 6}.{digits}g}" for value in row)
        yield f"[{start:>5}]{cells}"
    if shown < len(values):
        yield f"[{shown:>5}] {len(values) - shown} more values are not shown"
