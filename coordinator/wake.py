"""A flag that one thread sets and another waits for in poll(), beside its other descriptors."""

from __future__ import annotations

import os


class Wake:
    """set may be called by any thread and by a signal handler; the rest by the waiting thread."""

    def __init__(self) -> None:
        self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def set(self) -> None:
        """Nothing happens when it is set already, or closed."""
        if self._descriptor >= 0:
            os.eventfd_write(self._descriptor, 1)

    def clear(self) -> None:
        """Clear before looking for what was announced, so that nothing is missed."""
        try:
            os.eventfd_read(self._descriptor)
        except BlockingIOError:
            return

    def fileno(self) -> int:
        """Readable while the flag is set."""
        return self._descriptor

    def close(self) -> None:
        """May be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)
