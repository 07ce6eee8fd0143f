"""What a timing depends on: the machine, the versions, and how busy other programs kept it."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from types import TracebackType

import numpy as np
from google.protobuf import __version__ as protobuf_version


def describe() -> str:
    """One line: processor, cores this process may use, kernel, Python."""
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, {platform.system()} {platform.release()}, Python " + (
        platform.python_version()
    )


def versions() -> str:
    """One line: the libraries that the numbers depend on."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return (
        f"NumPy {np.__version__} with {blas['name']} {blas['version']}, protobuf {protobuf_version}"
    )


def _busy_s() -> float:
    """Busy core-seconds of the whole machine since it started."""
    fields = [int(value) for value in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    """Busy core-seconds of this process and of its children that were reaped."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class OtherPrograms:
    """Context manager: `cores` says how many cores other programs used meanwhile.

    Children must have been reaped before it is left, or they count as others.
    """

    def __init__(self) -> None:
        self.cores = 0.0

    def __enter__(self) -> OtherPrograms:
        self._start = (time.monotonic(), _busy_s(), _own_s())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        started, busy, own = self._start
        elapsed = time.monotonic() - started
        self.cores = max(0.0, (_busy_s() - busy - (_own_s() - own)) / elapsed)
