"""How fast weights can be read from memory: the roofline of decoding one request.

A matrix-vector product does two operations per weight and reads it once, so it runs as fast as
memory gives. Measured in a process of its own with one BLAS thread: as many threads as processors
each multiply their rows of every matrix, as the threads of a rank do.

    python bandwidth.py THREADS REPEATS     prints bytes per second, one line per repeat
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import numpy as np

# Four matrices of the 4B model's MLP: 377 MB, far more than caches hold.
_MATRICES: Final = 4
_ROWS: Final = 9216
_COLUMNS: Final = 2560
_REPEATS: Final = 20
_TIMEOUT_S: Final = 300


def read_bandwidth(threads: int, repeats: int = _REPEATS) -> list[float]:
    """Bytes per second, one value per repeat. Raises CalledProcessError when the child fails."""
    ended = subprocess.run(
        [sys.executable, __file__, str(threads), str(repeats)],
        check=True,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        env={"PYTHONPATH": os.pathsep.join(sys.path), "OPENBLAS_NUM_THREADS": "1"},
    )
    return [float(line) for line in ended.stdout.split()]


def _measure(threads: int, repeats: int) -> list[float]:
    source = np.random.default_rng(0)
    matrices = [source.random((_ROWS, _COLUMNS), np.float32) for _ in range(_MATRICES)]
    vector = source.random(_COLUMNS, np.float32)
    edges = [_ROWS * part // threads for part in range(threads + 1)]

    def part(number: int) -> None:
        first, last = edges[number], edges[number + 1]
        out = np.empty(last - first, np.float32)
        for matrix in matrices:
            np.dot(matrix[first:last], vector, out=out)

    found = []
    size = sum(matrix.nbytes for matrix in matrices)
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(repeats + 1):
            started = time.perf_counter()
            list(pool.map(part, range(threads)))
            found.append(size / (time.perf_counter() - started))
    # The first one starts the threads.
    return found[1:]


def main(argv: Sequence[str]) -> None:
    threads, repeats = map(int, argv)
    for value in _measure(threads, repeats):
        print(value)


if __name__ == "__main__":
    main(sys.argv[1:])
