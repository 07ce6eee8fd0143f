"""Products of many rows by weights in bfloat16 on tile registers: the side of model/many_rows.c.

A prefill has hundreds of rows, and its products take nearly all of its time. Where a processor has
tile registers for bfloat16, three exact parts of each float32 make the same product several times
as fast as the processor's vectors do. A result depends on its row of x and its row of W alone:
batch, threads and cuts of the columns don't change a bit.

Docs: docs/adr/0058-many-rows-on-tile-registers.md.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from errors import MisuseError
from model.compiled import Aligned, function, library
from model.few_rows import Held, demand_part, demand_weight
from model.ops import Array
from program.checkpoint import StoredDtype

# Rows of x that are multiplied at once; a longer x is cut (program/qwen35_memory.py counts them).
ROWS_MAX: Final = 256
# Rows of x, and of the weight, that make one block of the result.
PANEL: Final = 32
_STEP: Final = 32
_PARTS: Final = 3


@cache
def available() -> bool:
    """Whether the processor has tile registers for bfloat16, and the system lends them to us."""
    return bool(library().tile_registers())


class Parts:
    """Up to ROWS_MAX rows of x, cut into their parts panel by panel."""

    def __init__(self, x: Array) -> None:
        """x: [rows, depth] float32."""
        if x.dtype != np.float32 or x.ndim != 2 or not 0 < len(x) <= ROWS_MAX:
            raise MisuseError(f"{x.dtype} of shape {x.shape}: up to {ROWS_MAX} rows of float32")
        self._x = np.ascontiguousarray(x)
        self.rows, self.depth = x.shape
        self.panels = -(-self.rows // PANEL)
        steps = -(-self.depth // _STEP)
        self._memory = Aligned(self.panels * PANEL * steps * _STEP * _PARTS * 2)
        self.address = self._memory.address

    def cut(self, start: int, stop: int) -> None:
        """Panels start .. stop - 1; all must be cut before a product. Without the lock."""
        if not 0 <= start <= stop <= self.panels:
            raise MisuseError(f"panels {start} to {stop} of {self.panels}")
        pack = function("many_rows_pack", 2, 4)
        pack(self._x.ctypes.data, self.address, self.rows, self.depth, start, stop)


class ManyRows:
    """A weight held as bfloat16, [out_features, in_features], as the right side of products.

    The weight's memory must stay where it is; its values may change.
    """

    def __init__(self, weight: Held) -> None:
        demand_weight(weight, StoredDtype.BFLOAT16)
        if not available():
            raise MisuseError("this processor has no tile registers")
        self._weight = weight
        self._multiply = function("many_rows_multiply", 4, 4)

    def multiply(self, x: Parts, start: int, stop: int, out: Array) -> None:
        """Columns start .. stop - 1 of out = x @ W.T; out: [rows, out_features] float32.

        Without the interpreter's lock, so that threads can share the columns.
        """
        demand_part(self._weight, x.rows, x.depth, start, stop, out)
        scratch = Aligned(library().many_rows_scratch())
        self._multiply(
            x.address,
            self._weight.ctypes.data + start * self._weight.strides[0],
            out.ctypes.data + 4 * start,
            scratch.address,
            x.rows,
            stop - start,
            x.depth,
            len(self._weight),
        )
