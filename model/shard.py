"""Applies a cut to an array: the only place where index arithmetic meets array memory."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from program.partition import ShardRule, cut

Scalar = TypeVar("Scalar", bound=np.generic)


def take(rule: ShardRule, array: NDArray[Scalar], rank: int, world_size: int) -> NDArray[Scalar]:
    """The slice of `array` that `rank` of `world_size` holds under `rule`, C-contiguous.

    A replicated tensor is returned as it is when it is contiguous already; otherwise a copy.
    Raises ConfigError when the rule does not divide or does not describe the array's shape.
    """
    piece = cut(rule, array.shape, rank, world_size)
    if piece.axis is None:
        return np.ascontiguousarray(array)
    before = (slice(None),) * piece.axis
    parts = [array[(*before, slice(r.start, r.stop))] for r in piece.ranges]
    return np.concatenate(parts, axis=piece.axis) if len(parts) > 1 else parts[0].copy()
