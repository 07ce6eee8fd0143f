"""The physical state of one rank: recurrent and convolution state by slot, keys and values by page.

Arenas are allocated and touched at construction, so a rank that can't hold its state fails before
it serves. What may happen to slots and pages is decided elsewhere (program/slots.py); this file
only does it. With `poison`, memory that belongs to nobody is NaN, so a stale read can't look
plausible. It must not know plans, weights or formulas.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from errors import MisuseError
from model.ops import Array
from program.spec import ProgramSpec, StateScope, StateSpec


class RankState:
    """recurrent: [linear layers, slots, value heads, key_dim, value_dim].
    conv: [linear layers, slots, channels, kernel - 1].
    keys, values: [full layers, kv heads, pages * page_tokens, head_dim].

    Shapes are those of the program's state specs with the arena's axis put in; the element type is
    that of the program's partials.
    """

    def __init__(
        self, program: ProgramSpec, slots: int, pages: int, page_tokens: int, *, poison: bool
    ) -> None:
        dtype = np.dtype(program.partial_dtype.value)
        specs = {state.name: state for state in program.state}
        self._fill = np.nan if poison else 0.0
        self._page_tokens = page_tokens
        tokens = pages * page_tokens

        def arena(name: str, axis: int, extent: int) -> Array:
            shape = specs[name].local_shape if name in specs else (0,) * 2
            full = (*shape[:axis], extent, *shape[axis:])
            result: Array = np.full(full, self._fill, dtype)
            return result

        self.recurrent = arena("recurrent", 1, slots)
        self.conv = arena("conv", 1, slots)
        self.keys = arena("keys", 2, tokens)
        self.values = arena("values", 2, tokens)
        expected = state_bytes(program.state, slots, tokens)
        if self.allocated_bytes != expected:
            raise MisuseError(f"state of {self.allocated_bytes} bytes, the formula has {expected}")

    @property
    def allocated_bytes(self) -> int:
        arenas = (self.recurrent, self.conv, self.keys, self.values)
        return sum(array.nbytes for array in arenas)

    def admit(self, slot: int) -> None:
        """A request begins in this slot: its recurrent and convolution state is zero."""
        self.recurrent[:, slot] = 0
        self.conv[:, slot] = 0

    def release(self, slot: int, pages: Sequence[int]) -> None:
        """The slot and the pages belong to nobody from here on."""
        self._clear_slot(slot)
        for page in pages:
            tokens = slice(page * self._page_tokens, (page + 1) * self._page_tokens)
            self.keys[:, :, tokens] = self._fill
            self.values[:, :, tokens] = self._fill

    def move(self, from_slot: int, to_slot: int) -> None:
        """The slot's state goes to a free slot; pages stay where they are."""
        self.recurrent[:, to_slot] = self.recurrent[:, from_slot]
        self.conv[:, to_slot] = self.conv[:, from_slot]
        self._clear_slot(from_slot)

    def _clear_slot(self, slot: int) -> None:
        self.recurrent[:, slot] = self._fill
        self.conv[:, slot] = self._fill

    def write_context(
        self, layer: int, pages: PageTable, start: int, keys: Array, values: Array
    ) -> None:
        """Cache keys and values [tokens, kv_heads, head_dim] of positions `start` and onwards."""
        where = pages.locate(start, start + len(keys))
        self.keys[layer][:, where] = keys.swapaxes(0, 1)
        self.values[layer][:, where] = values.swapaxes(0, 1)

    def read_context(
        self, layer: int, pages: PageTable, start: int, stop: int
    ) -> tuple[Array, Array]:
        """Cached keys and values of positions start .. stop - 1: each [kv_heads, tokens, head_dim].

        A view where the pages lie next to each other, else a copy; the values are the same.
        """
        where = pages.locate(start, stop)
        return self.keys[layer][:, where], self.values[layer][:, where]


class PageTable:
    """Where the positions of one request lie in the arenas of keys and values.

    pages: strictly ascending page numbers; page i holds positions i * page_tokens and onwards.
    """

    def __init__(self, pages: Sequence[int], page_tokens: int) -> None:
        self._pages = np.asarray(pages, np.int64)
        self._page_tokens = page_tokens

    def locate(self, start: int, stop: int) -> slice | npt.NDArray[np.int64]:
        """Token indices of positions start .. stop - 1 (at least one) in an arena."""
        size = self._page_tokens
        first, last = start // size, (stop - 1) // size
        if self._pages[last] - self._pages[first] == last - first:  # ascending, hence adjacent
            begin = int(self._pages[first]) * size + start % size
            return slice(begin, begin + stop - start)
        positions = np.arange(start, stop)
        located: npt.NDArray[np.int64] = self._pages[positions // size] * size + positions % size
        return located


def state_bytes(states: Sequence[StateSpec], slots: int, tokens: int) -> int:
    """Bytes of all arenas of one rank: per-slot state times slots, per-token state times tokens."""
    extent = {StateScope.SLOT: slots, StateScope.TOKEN: tokens}
    return sum(state.local_bytes * extent[state.scope] for state in states)
