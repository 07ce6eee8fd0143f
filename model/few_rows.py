"""Products of few rows by held weights, compiled: the Python side of model/few_rows.c.

A batch of decoding requests has 1 to some dozens of rows. BLAS packs the whole weight for them,
and NumPy has no bfloat16; this reads each held byte once, at the speed of memory. A result depends
on its row of x and its row of W alone: batch, threads and instruction set don't change a bit.

Docs: docs/adr/0056-a-kernel-for-few-rows.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from errors import MisuseError
from model.compiled import Aligned, Function, function, library
from model.ops import Array
from program.checkpoint import StoredDtype

Held = npt.NDArray[Any]

# Sums that make one result.
_LANES: Final = 16
# NumPy has no bfloat16: its bits are held as uint16.
HELD_NUMPY: Final[Mapping[StoredDtype, np.dtype[Any]]] = {
    StoredDtype.FLOAT32: np.dtype("<f4"),
    StoredDtype.BFLOAT16: np.dtype("<u2"),
    StoredDtype.FLOAT16: np.dtype("<f2"),
}
# The end of the names of the functions for a held type.
_TYPE: Final[Mapping[StoredDtype, str]] = {
    StoredDtype.FLOAT32: "float32",
    StoredDtype.BFLOAT16: "bfloat16",
    StoredDtype.FLOAT16: "float16",
}


class InstructionSet(Enum):
    """The forms that the kernel is compiled in; the value is the suffix of its functions."""

    AVX512F = "avx512f"
    AVX2 = "avx2"


@cache
def available() -> tuple[InstructionSet, ...]:
    """What this processor runs, best first; empty where it has no fused multiply-add."""
    return tuple(InstructionSet)[len(InstructionSet) - library().instruction_set() :]


class Packed:
    """Rows of x in the layout that a kernel reads."""

    def __init__(self, x: Array, pack: Function) -> None:
        if x.dtype != np.float32 or x.ndim != 2:
            raise MisuseError(f"{x.dtype} of shape {x.shape}: [rows, depth] of float32 is needed")
        x = np.ascontiguousarray(x)
        self.rows, self.depth = x.shape
        # The layout is that of one instruction set.
        self.pack = pack
        padded = -(-self.depth // _LANES) * _LANES
        self._memory = Aligned(self.rows * padded * x.itemsize)
        self.address = self._memory.address
        pack(x.ctypes.data, self.address, self.rows, self.depth)


def demand_weight(weight: Held, held: StoredDtype) -> None:
    """[out_features, in_features], C-contiguous, held as that type. Raises MisuseError."""
    if weight.dtype != HELD_NUMPY[held] or weight.ndim != 2 or not weight.flags.c_contiguous:
        raise MisuseError(f"a weight of {weight.dtype}, {weight.shape}, held as {held.value}")


def demand_part(weight: Held, rows: int, depth: int, start: int, stop: int, out: Array) -> None:
    """Columns start .. stop - 1 of out = x @ W.T, x [rows, depth]. Raises MisuseError."""
    columns = len(weight)
    if not 0 <= start <= stop <= columns or depth != weight.shape[1]:
        raise MisuseError(f"columns {start} to {stop} of {weight.shape}, x {depth}")
    if out.shape != (rows, columns) or out.dtype != np.float32 or not out.flags.carray:
        raise MisuseError(f"a result of {out.dtype}, {out.shape}: not [{rows}, {columns}]")


class FewRows:
    """One held weight, [out_features, in_features], C-contiguous, as the right side of products.

    The weight's memory must stay where it is; its values may change.
    """

    def __init__(self, weight: Held, held: StoredDtype, instructions: InstructionSet) -> None:
        demand_weight(weight, held)
        self._weight = weight
        self._address = weight.ctypes.data
        self._row_bytes = weight.strides[0]
        self._pack = function(f"pack_{instructions.value}", 2, 2)
        self._multiply = function(f"multiply_{_TYPE[held]}_{instructions.value}", 3, 4)
        self._widen = function(f"widen_{_TYPE[held]}_{instructions.value}", 2, 1)

    def pack(self, x: Array) -> Packed:
        """x: [rows, in_features] float32, once for all parts of the product."""
        if x.shape[-1] != self._weight.shape[1]:
            raise MisuseError(f"rows of {x.shape[-1]} for a weight of {self._weight.shape}")
        return Packed(x, self._pack)

    def multiply(self, x: Packed, start: int, stop: int, out: Array) -> None:
        """Columns start .. stop - 1 of out = x @ W.T; out: [rows, out_features] float32.

        Without the interpreter's lock, so that threads can share the columns.
        """
        demand_part(self._weight, x.rows, x.depth, start, stop, out)
        if x.pack is not self._pack:
            raise MisuseError("x is packed for another instruction set")
        self._multiply(
            x.address,
            self._address + start * self._row_bytes,
            out.ctypes.data + 4 * start,
            x.rows,
            stop - start,
            x.depth,
            len(self._weight),
        )

    def widen(self, start: int, stop: int, out: Array) -> None:
        """Rows start .. stop - 1 of the weight into `out`, [stop - start, in_features] float32."""
        columns, depth = self._weight.shape
        if not 0 <= start <= stop <= columns or out.shape != (stop - start, depth):
            raise MisuseError(f"rows {start} to {stop} of {self._weight.shape} into {out.shape}")
        if out.dtype != np.float32 or not out.flags.carray:
            raise MisuseError(f"a block of {out.dtype}, strides {out.strides}")
        self._widen(self._address + start * self._row_bytes, out.ctypes.data, out.size)
