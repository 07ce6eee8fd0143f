"""The sum over ranks: the only arithmetic the coordinator does, and its only use of NumPy.

Each order is a fixed tree of IEEE additions in the partials' own precision, so the same partials
give the same bytes on any machine (docs/spec/program.md, "Reduction").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from errors import MisuseError

Buffer = bytes | bytearray | memoryview
Array = NDArray[np.floating]


def _rank_order(arrays: list[Array]) -> Array:
    """((p0 + p1) + p2) + ..."""
    total = arrays[0]
    for array in arrays[1:]:
        total = total + array
    return total


def _pairwise(arrays: list[Array]) -> Array:
    """(p0 + p1) + (p2 + p3), and so on; a last one without partner moves up unchanged."""
    while len(arrays) > 1:
        paired = [a + b for a, b in zip(arrays[0::2], arrays[1::2], strict=False)]
        arrays = paired + arrays[2 * len(paired) :]
    return arrays[0]


SUM_ORDERS: dict[str, Callable[[list[Array]], Array]] = {
    "pairwise": _pairwise,
    "rank": _rank_order,
}


def reduce_partials(partials: Sequence[Buffer], order: str, dtype: str) -> Buffer:
    """Sum equal-sized little-endian payloads of element type `dtype` (`<f4` or `<f8`).

    order: a key of SUM_ORDERS. One partial is returned as it came. The result is a read-only view.
    """
    if order not in SUM_ORDERS or not partials:
        raise MisuseError(f"no reduction of {len(partials)} partials in order {order!r}")
    if len(partials) == 1:
        return partials[0]
    arrays: list[Array] = [np.frombuffer(partial, dtype=dtype) for partial in partials]
    return SUM_ORDERS[order](arrays).data.cast("B").toreadonly()
