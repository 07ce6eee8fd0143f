"""A matrix product with held weights: y = x @ W.T.

Weights [out, in] are held as float32, or as bfloat16 or float16, which are widened block by block
into a buffer that stays in the cache, right in front of the product. The widened matrix never
exists as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from model.ops import Array
from program.checkpoint import StoredDtype

Held = npt.NDArray[Any]

# NumPy has no bfloat16: its bits are held as uint16.
HELD_NUMPY: Final[Mapping[StoredDtype, np.dtype[Any]]] = {
    StoredDtype.FLOAT32: np.dtype("<f4"),
    StoredDtype.BFLOAT16: np.dtype("<u2"),
    StoredDtype.FLOAT16: np.dtype("<f2"),
}
# Bytes of a widened block: a quarter of a small second-level cache.
_BLOCK_BYTES: Final = 256 << 10


def widen(bits: Held, dtype: StoredDtype, out: Array) -> None:
    """Exact float32 or float64 values of held elements, into `out` of the same shape."""
    if dtype is not StoredDtype.BFLOAT16:
        np.copyto(out, bits)
    elif out.dtype == np.float32:
        words = out.view(np.uint32)
        np.copyto(words, bits)
        words <<= 16
    else:
        np.copyto(out, (bits.astype(np.uint32) << 16).view(np.float32))


def narrow(values: Held, stored: StoredDtype, held: StoredDtype) -> Held:
    """Elements as stored, converted to the type they are held in.

    To bfloat16: round to nearest, ties to even; NaN stays NaN. Widening is exact.
    """
    if stored is held:
        return values
    wide = np.empty(values.shape, np.float32)
    widen(values, stored, wide)
    if held is StoredDtype.BFLOAT16:
        words = wide.view(np.uint32)
        rounded = ((words + (0x7FFF + ((words >> 16) & 1))) >> 16).astype(np.uint16)
        return np.where(np.isnan(wide), np.uint16(0x7FC0), rounded)
    return wide if held is StoredDtype.FLOAT32 else wide.astype(np.float16)


class Linear:
    """Weights [out_features, in_features] of one rank, filled by the loader, then only read."""

    def __init__(
        self, out_features: int, in_features: int, held: StoredDtype, compute: npt.DTypeLike
    ) -> None:
        self.out_features = out_features
        self.in_features = in_features
        self._held = held
        self._compute = np.dtype(compute)
        self._weight: Held = np.empty((out_features, in_features), HELD_NUMPY[held])
        self._direct = self._weight.dtype == self._compute

    @property
    def held_bytes(self) -> int:
        return self._weight.nbytes

    def store(self, first_row: int, values: Held, stored: StoredDtype) -> None:
        """Put rows [rows, in_features], as stored in the checkpoint, where they belong."""
        self._weight[first_row : first_row + len(values)] = narrow(values, stored, self._held)

    def rows(self, indices: npt.NDArray[np.int64]) -> Array:
        """Rows of the weight, widened: [len(indices), in_features] (an embedding's look-up)."""
        result: Array = np.empty((len(indices), self.in_features), self._compute)
        widen(self._weight[indices], self._held, result)
        return result

    def __call__(self, x: Array) -> Array:
        """x @ W.T: [tokens, in_features] -> [tokens, out_features]."""
        if self._direct:
            product: Array = x @ self._weight.T
            return product
        result: Array = np.empty((len(x), self.out_features), self._compute)
        block_rows = max(1, _BLOCK_BYTES // (self.in_features * self._compute.itemsize))
        buffer: Array = np.empty((block_rows, self.in_features), self._compute)
        for start in range(0, self.out_features, block_rows):
            stop = min(start + block_rows, self.out_features)
            block = buffer[: stop - start]
            widen(self._weight[start:stop], self._held, block)
            np.matmul(x, block.T, out=result[:, start:stop])
        return result
