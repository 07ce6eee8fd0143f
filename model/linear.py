"""A matrix product with held weights: y = x @ W.T.

Weights [out, in] are held as float32, or as bfloat16 or float16. Few rows (a batch of decoding
requests) are multiplied as they are held (few_rows.py), many by bfloat16 on tile registers where
there are any (many_rows.py). Otherwise a block of the weight is widened into a buffer that stays in
the cache, right in front of the product by BLAS; the widened matrix never exists as a whole.
`Linear.reference` is the same product in one plain expression.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from model import few_rows, many_rows
from model.crew import SOLO, Crew
from model.few_rows import HELD_NUMPY, FewRows, Held, InstructionSet
from model.many_rows import ManyRows, Parts
from model.ops import Array
from program.checkpoint import StoredDtype

# Bytes of a widened block: BLAS packs it, and larger ones are packed less often.
_BLOCK_BYTES: Final = 8 << 20
# Parts of threads and blocks begin at multiples of this many rows of the weight.
_ROWS: Final = many_rows.PANEL
# Beyond this many rows of x tile registers are faster, and so is BLAS.
_FEW_ROWS: Final = 32
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


@dataclass(frozen=True)
class Kernels:
    """Which compiled products may be used. few_rows: None where the processor runs neither."""

    few_rows: InstructionSet | None
    many_rows: bool

    @staticmethod
    def of_processor() -> Kernels:
        """All that this one runs."""
        return Kernels(next(iter(few_rows.available()), None), many_rows.available())


NO_KERNELS: Final = Kernels(None, many_rows=False)


class Linear:
    """Weights [out_features, in_features] of one rank, filled by the loader, then only read."""

    def __init__(
        self,
        out_features: int,
        in_features: int,
        held: StoredDtype,
        compute: npt.DTypeLike,
        crew: Crew = SOLO,
        kernels: Kernels | None = None,
    ) -> None:
        """kernels: those to use; None is what the processor has."""
        self.out_features = out_features
        self.in_features = in_features
        self._held = held
        self._compute = np.dtype(compute)
        self._weight: Held = np.empty((out_features, in_features), HELD_NUMPY[held])
        self._crew = crew if self.held_bytes >= _SHARED_BYTES_MIN else SOLO
        if self._compute != np.float32:
            kernels = NO_KERNELS
        elif kernels is None:
            kernels = Kernels.of_processor()
        self._few: FewRows | None = None
        if kernels.few_rows is not None:
            self._few = FewRows(self._weight, held, kernels.few_rows)
        self._many: ManyRows | None = None
        if kernels.many_rows and held is StoredDtype.BFLOAT16:
            self._many = ManyRows(self._weight)

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
        if self._few is not None and len(x) <= _FEW_ROWS:
            self._share(partial(self._few.multiply, self._few.pack(x), out=result))
        elif self._many is not None:
            for start in range(0, len(x), many_rows.ROWS_MAX):
                rows = slice(start, start + many_rows.ROWS_MAX)
                parts = Parts(x[rows])
                self._crew.share(parts.cut, parts.panels)
                self._share(partial(self._many.multiply, parts, out=result[rows]))
        else:
            self._share(partial(self._multiply, x, out=result))
        return result

    def _share(self, columns: Callable[[int, int], None]) -> None:
        self._crew.share(columns, self.out_features, _ROWS)

    def _multiply(self, x: Array, start: int, stop: int, out: Array) -> None:
        """Columns start .. stop - 1 of the result, by BLAS."""
        if self._weight.dtype == self._compute:
            multiply(x, self._weight[start:stop], out[:, start:stop])
            return
        row_bytes = self.in_features * self._compute.itemsize
        step = max(1, _BLOCK_BYTES // row_bytes // _ROWS) * _ROWS
        buffer: Array = np.empty((min(step, stop - start), self.in_features), self._compute)
        for first in range(start, stop, step):
            last = min(first + step, stop)
            block = buffer[: last - first]
            if self._few is not None:
                self._few.widen(first, last, block)
            else:
                widen(self._weight[first:last], self._held, block)
            multiply(x, block, out[:, first:last])


def multiply(x: Array, weight: Array, out: Array) -> None:
    """out = x @ weight.T. x: [tokens, depth], weight: [columns, depth], both contiguous."""
    if len(x) == 1:
        np.dot(weight, x[0], out=out[0])
    else:
        np.matmul(x, weight.T, out=out)
