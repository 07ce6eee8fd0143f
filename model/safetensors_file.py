"""Bytes of a safetensors file as arrays: memory-mapped, one bounded block at a time.

A rank maps each file once and copies out only its own slices. Every block's pages are given back
(MADV_DONTNEED) once copied, so the resident size of a loading rank stays near what it holds.
The byte ranges come from program/safetensors.py, which has checked them against the file.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from errors import ConfigError
from model.few_rows import HELD_NUMPY
from program.checkpoint import StoredTensor
from program.partition import Cut, IndexRange

# Large enough that a copy's fixed cost is lost in it, small beside any rank's share of a model.
BLOCK_BYTES: Final = 4 << 20
Stored = npt.NDArray[Any]


class MappedFile:
    """A weight file, mapped for reading until it is closed."""

    def __init__(self, path: Path) -> None:
        try:
            with path.open("rb") as stream:
                self._map = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ConfigError.single(
                path.name, path, f"must be readable: {error}", "checkpoint.unreadable"
            ) from error
        self._path = path

    def close(self) -> None:
        self._map.close()

    def blocks(self, tensor: StoredTensor, cut: Cut) -> Iterator[tuple[int, Stored]]:
        """The slice that `cut` describes, in blocks: (first row of the slice, [rows, ...] copy).

        A tensor of more than two axes counts as rows of its first axis.
        """
        entry = tensor.entry
        if entry.stop > len(self._map):  # the file has shrunk since its header was checked
            raise ConfigError.single(
                self._path.name, f"{len(self._map)} bytes", "is truncated", "checkpoint.header"
            )
        rows = entry.shape[0]
        row_bytes = entry.bytes_count // rows
        step = max(1, BLOCK_BYTES // row_bytes)
        columns = slice(None)
        ranges: tuple[IndexRange, ...] = (IndexRange(0, rows),)
        if cut.axis == 0:
            ranges = cut.ranges
        elif cut.axis == 1:
            (column_range,) = cut.ranges
            columns = slice(column_range.start, column_range.stop)
        written = 0
        for row_range in ranges:
            for first in range(row_range.start, row_range.stop, step):
                last = min(first + step, row_range.stop)
                yield written, self._copy(tensor, first, last, row_bytes, columns)
                written += last - first

    def _copy(
        self, tensor: StoredTensor, first: int, last: int, row_bytes: int, columns: slice
    ) -> Stored:
        shape = (last - first, *tensor.entry.shape[1:])
        start = tensor.entry.start + first * row_bytes
        dtype = HELD_NUMPY[tensor.dtype]
        count = (last - first) * row_bytes // dtype.itemsize
        view = np.frombuffer(self._map, dtype, count, start).reshape(shape)
        copy: Stored = view[:, columns].copy() if len(shape) > 1 else view.copy()
        del view  # the map can't be closed while an array looks into it
        page = mmap.PAGESIZE
        begin = start // page * page
        self._map.madvise(mmap.MADV_DONTNEED, begin, start + (last - first) * row_bytes - begin)
        return copy
