"""Connections that can't be accepted because the process or the machine has no room for them.

asyncio tries again every second, and would write a stack each time. docs/spec/http.md H22.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from typing import Any, Final

# Those after which asyncio waits and tries again.
_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_TOLD_EVERY_S: Final = 60.0


class AcceptFailures:
    """Tells of the first at once, and then at most once a minute. count: what the loop told of."""

    def __init__(self, tell: Callable[[str], None], clock: Callable[[], float]) -> None:
        self.count = 0
        self._tell = tell
        self._clock = clock
        self._told_at: float | None = None

    def handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler; everything else goes the loop's usual way."""
        failure = context.get("exception")
        # Only the failure of a listener comes with its socket alone.
        if (
            not isinstance(failure, OSError)
            or failure.errno not in _NO_ROOM
            or "socket" not in context
        ):
            loop.default_exception_handler(context)
            return
        self.count += 1
        now = self._clock()
        if self._told_at is None or now - self._told_at >= _TOLD_EVERY_S:
            self._told_at = now
            self._tell(
                f"no connection can be accepted: {failure.strerror}; tried again each second\n"
            )
