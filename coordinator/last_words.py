"""What a worker process wrote on standard error, kept in memory and read at its end."""

from __future__ import annotations

import os
from typing import Final

BYTES_MAX: Final = 4_096


class LastWords:
    """An anonymous file: a talkative worker never blocks on a reader that is busy elsewhere."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("worker-stderr")

    def fileno(self) -> int:
        return self._descriptor

    def text(self) -> str:
        """The end of what was written, at most BYTES_MAX bytes; empty once closed."""
        if self._descriptor < 0:
            return ""
        size = os.fstat(self._descriptor).st_size
        data = os.pread(self._descriptor, BYTES_MAX, max(0, size - BYTES_MAX))
        return data.decode("utf-8", "replace").strip()

    def close(self) -> None:
        """May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
