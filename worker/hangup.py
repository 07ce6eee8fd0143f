"""Ends a worker whose coordinator is gone while it computes.

The main thread notices the end of the connection at its next read; a long computation has no next
read. This watch waits for the peer's hang-up in a thread of its own and, when the process has not
ended by itself within a grace period, ends it (docs/spec/session.md S2).
"""

from __future__ import annotations

import os
import select
import sys
import threading
from types import TracebackType

from errors import TPError

GRACE_S = 3.0
EXIT_CODE = 3
_POLL_MS = 500


class HangupWatch:
    """Context manager: while it is open, a hang-up of `descriptor` bounds the process's life."""

    def __init__(self, descriptor: int, grace_s: float = GRACE_S) -> None:
        self._descriptor = descriptor
        self._grace_s = grace_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="hangup", daemon=True)

    def __enter__(self) -> HangupWatch:
        """Raises TPError `process.resources` where no thread can be started."""
        try:
            self._thread.start()
        except RuntimeError:
            raise TPError("process.resources", "can't start one thread more") from None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()

    def _watch(self) -> None:
        poll = select.poll()
        # POLLRDHUP alone: readable data must not wake this thread.
        poll.register(self._descriptor, select.POLLRDHUP)
        while not self._done.is_set():
            if not poll.poll(_POLL_MS):
                continue
            if self._done.wait(self._grace_s):
                return
            print("worker: the coordinator is gone; leaving", file=sys.stderr, flush=True)
            os._exit(EXIT_CODE)
