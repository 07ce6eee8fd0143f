"""The threads of one rank: a range of rows or heads cut into fixed parts, one per thread.

NumPy lets go of the interpreter inside products and element-wise loops, so threads of one process
share the work without BLAS threads of their own (which spin when a machine is busy). Who gets
which part depends on the count alone, so a run repeats bit for bit. It must not know arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Final

from errors import MisuseError


class Crew:
    """`threads` workers in all, the calling thread among them."""

    def __init__(self, threads: int) -> None:
        if threads < 1:
            raise MisuseError(f"a crew of {threads} threads")
        self.threads = threads
        self._pool = ThreadPoolExecutor(threads - 1) if threads > 1 else None

    def share(self, work: Callable[[int, int], None], extent: int, unit: int = 1) -> None:
        """work(start, stop) over parts of 0 .. extent - 1; part borders are multiples of `unit`.

        Returns when all parts are done; raises what a part raised.
        """
        units = -(-extent // unit)
        if self._pool is None or units < 2:
            work(0, extent)
            return
        edges = [min(extent, units * i // self.threads * unit) for i in range(self.threads + 1)]
        others = [
            self._pool.submit(work, start, stop)
            for start, stop in pairwise(edges[1:])
            if start < stop
        ]
        try:
            work(edges[0], edges[1])
        finally:
            for other in others:
                other.exception()  # waits: nobody may still write when the caller goes on
        for other in others:
            other.result()


SOLO: Final = Crew(1)
