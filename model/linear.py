"""A matrix product with held weights: y = x @ W.T.

Weights [out, in] are held as float32, or as bfloat16 or float16, which are widened block by block
into a buffer that stays in the cache, right in front of the product; the widened matrix never
exists as a whole. `Linear.reference` is the same product in one plain expression.

Few rows (a batch of decoding requests) are the hard case: BLAS packs the whole weight matrix first,
which costs more than the product, so it runs at a quarter of the memory's speed. OpenBLAS has
kernels that don't pack, for products of up to 10^6 multiplications; so the weight is walked in
blocks that stay below that (docs/adr/0020-products-of-few-rows.md has the measurements).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from model.crew import SOLO, Crew
from model.ops import Array
from program.checkpoint import StoredDtype

Held = npt.NDArray[Any]

# NumPy has no bfloat16: its bits are held as uint16.
HELD_NUMPY: Final[Mapping[StoredDtype, np.dtype[Any]]] = {
    StoredDtype.FLOAT32: np.dtype("<f4"),
    StoredDtype.BFLOAT16: np.dtype("<u2"),
    StoredDtype.FLOAT16: np.dtype("<f2"),
}
# Bytes of a widened block: a quarter of a small second-level cache for few rows of x; for many, the
# product packs the block anyway and larger ones pack less often.
_BLOCK_BYTES: Final = 256 << 10
_MANY_ROWS: Final = 64
_MANY_ROWS_BLOCK_BYTES: Final = 4 << 20
# Most multiplications of a product that OpenBLAS does without packing.
_UNPACKED_MAX: Final = 1_000_000
# Rows of a weight block, and depths are cut in multiples of a cache line of float32.
_ROWS: Final = 32
_DEPTH_UNIT: Final = 16
# Beyond this many rows of x the plain product is faster, or as fast.
_FEW_ROWS: Final = 24
# Below this many held bytes a thread costs more than it saves.
_SHARED_BYTES_MIN: Final = 2 << 20


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
        self,
        out_features: int,
        in_features: int,
        held: StoredDtype,
        compute: npt.DTypeLike,
        crew: Crew = SOLO,
    ) -> None:
        self.out_features = out_features
        self.in_features = in_features
        self._held = held
        self._compute = np.dtype(compute)
        self._weight: Held = np.empty((out_features, in_features), HELD_NUMPY[held])
        self._is_shared = self.held_bytes >= _SHARED_BYTES_MIN
        self._crew = crew if self._is_shared else SOLO

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

    def reference(self, x: Array) -> Array:
        """x @ W.T with the whole matrix widened: what `__call__` is tested against."""
        product: Array = x @ self.rows(np.arange(self.out_features)).T
        return product

    def __call__(self, x: Array) -> Array:
        """x @ W.T: [tokens, in_features] -> [tokens, out_features], in the compute dtype."""
        result: Array = np.empty((len(x), self.out_features), self._compute)

        def part(start: int, stop: int) -> None:
            self._multiply(x, start, stop, result)

        self._crew.share(part, self.out_features, _ROWS)
        return result

    def _multiply(self, x: Array, start: int, stop: int, result: Array) -> None:
        """Columns start .. stop - 1 of the result."""
        in_blocks = len(x) <= _FEW_ROWS and (
            # Blocks are the same however the matrix is shared out; plain products are not.
            self._is_shared or len(x) * self._weight.size > _UNPACKED_MAX
        )
        if self._weight.dtype == self._compute:
            multiply(x, self._weight[start:stop], result[:, start:stop], in_blocks)
            return
        row_bytes = self.in_features * self._compute.itemsize
        block_bytes = _BLOCK_BYTES if len(x) < _MANY_ROWS else _MANY_ROWS_BLOCK_BYTES
        step = max(1, block_bytes // row_bytes // _ROWS) * _ROWS
        buffer: Array = np.empty((min(step, stop - start), self.in_features), self._compute)
        for first in range(start, stop, step):
            last = min(first + step, stop)
            block = buffer[: last - first]
            widen(self._weight[first:last], self._held, block)
            multiply(x, block, result[:, first:last], in_blocks)


def multiply(x: Array, weight: Array, out: Array, in_blocks: bool) -> None:
    """out = x @ weight.T. x: [tokens, depth], weight: [columns, depth], both contiguous.

    in_blocks: as few rows of x are multiplied by a large matrix.
    """
    columns = len(weight)
    if len(x) == 1:
        np.dot(weight, x[0], out=out[0])
        return
    whole = columns // _ROWS * _ROWS if in_blocks else 0
    if whole:
        _multiply_few_rows(x, weight[:whole], out[:, :whole])
    if whole < columns:
        np.matmul(x, weight[whole:].T, out=out[:, whole:])


def _multiply_few_rows(x: Array, weight: Array, out: Array) -> None:
    """The same in blocks of 32 columns, the depth cut so that none of them is packed."""
    tokens, depth = x.shape
    depth_max = _UNPACKED_MAX // (tokens * _ROWS)
    units = -(-depth // _DEPTH_UNIT)
    units_max = max(1, depth_max // _DEPTH_UNIT)
    step = -(-units // -(-units // units_max)) * _DEPTH_UNIT  # equal parts, none above units_max
    blocks = weight.reshape(-1, _ROWS, depth).swapaxes(1, 2)
    target = blocked(out, _ROWS)
    np.matmul(x[:, :step], blocks[:, :step], out=target)
    for first in range(step, depth, step):
        part = slice(first, first + step)
        target += np.matmul(x[:, part], blocks[:, part])


def blocked(out: Array, step: int) -> Array:
    """[tokens, columns] seen as [columns / step, tokens, step], without a copy."""
    tokens, columns = out.shape
    down, right = out.strides
    return np.lib.stride_tricks.as_strided(
        out, (columns // step, tokens, step), (step * right, down, right)
    )
