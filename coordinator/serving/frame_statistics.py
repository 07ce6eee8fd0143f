"""Statistics of the values in a frame, worked out when somebody looks, within a bound.

The standard library's array and sums, which run in C, are enough: no array library is needed to
look at some thousands of numbers. Nothing here is NaN or infinite: what is not finite is counted.
"""

from __future__ import annotations

import math
import operator
from array import array
from typing import Final

from coordinator.tensor_text import read_values
from errors import ProtocolError
from wire.canonical import decode_canonical
from wire.frame import TENSOR_KINDS
from wire.recorder import Record

# Values that one answer looks at, some tens of milliseconds; later frames have none.
VALUES_MAX: Final = 1 << 19
FIRST_VALUES: Final = 8


class StatisticsBudget:
    """Of one answer. values_max: how many values may be looked at in all of its frames."""

    def __init__(self, values_max: int = VALUES_MAX) -> None:
        self._left = values_max

    def statistics(self, record: Record) -> dict[str, object] | None:
        """min, max, mean, rms over the finite values (null without any), counts, the first values.

        None for a frame without values, with values that are not kept, or beyond the bound.
        """
        header = record.header
        if header is None or header.kind not in TENSOR_KINDS or record.metadata is None:
            return None
        payload = record.payload
        if not payload or len(payload) != header.payload_bytes:
            return None
        values = read_values(bytes(payload), _dtype(record.metadata))
        if values is None or len(values) > self._left:
            return None
        self._left -= len(values)
        return values_json(values)


def values_json(values: array[float]) -> dict[str, object]:
    """Of at least one value. rms: root of the mean square. zeros: of either sign."""
    count, zeros = len(values), values.count(0.0)
    first = [value if math.isfinite(value) else None for value in values[:FIRST_VALUES]]
    finite = values
    # One sum in C tells the usual case; an overflow only costs the slow way.
    if not math.isfinite(sum(values)):
        finite = array(values.typecode, filter(math.isfinite, values))
    told: dict[str, object] = {"min": None, "max": None, "mean": None, "rms": None}
    if finite:
        low, high = min(finite), max(finite)
        # Scaled, so that no square of a finite value overflows.
        scale = max(abs(low), abs(high)) or 1.0
        scaled = [value / scale for value in finite]
        square = math.fsum(map(operator.mul, scaled, scaled)) / len(finite)
        told["min"], told["max"] = low, high
        told["mean"] = _finite(scale * (math.fsum(scaled) / len(finite)))
        told["rms"] = _finite(scale * math.sqrt(square))
    return told | {"zeros": zeros, "nonfinite": count - len(finite), "first": first}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _dtype(metadata: bytes) -> str:
    try:
        dtype = decode_canonical(metadata).get("dtype")
    except ProtocolError:
        return ""
    return dtype if isinstance(dtype, str) else ""
