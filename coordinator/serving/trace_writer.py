"""Steps on their way to trace files: a queue with a bound, and one thread that writes.

Serving never waits for a disk. A step that doesn't fit into the queue, or can't be written, is lost
and counted; the next one is tried again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from typing import Final, Protocol

from coordinator.deadlines import default_ms
from coordinator.step_timing import Doing, ObservedStep

# Steps that wait, and the bytes of their frames, which they keep alive.
WAITING_MAX: Final = 256
WAITING_BYTES_MAX: Final = 32 << 20


class TraceFile(Protocol):
    """Called by the writer's thread alone."""

    @property
    def sink(self) -> str:
        """Its name in the metric of lost steps."""

    def write(self, epoch: int, step: ObservedStep) -> bool:
        """Add one step; False when it is lost. The file stays whole either way."""

    def close(self) -> None:
        """End the file properly, if that is still possible."""


class TraceWriter:
    """Implements `StepObserver`. lost: told the sink's name for each step that is lost.

    close_s: how long `close` waits for a disk.
    """

    def __init__(
        self,
        files: Sequence[TraceFile],
        lost: Callable[[str], None],
        close_s: float = default_ms("traces") / 1000,
    ) -> None:
        self._files = tuple(files)
        self._lost = lost
        self._close_s = close_s
        self._waiting: deque[tuple[int, int, ObservedStep]] = deque()
        self._bytes = 0
        self._epoch = 0
        self._closed = False
        self._wake = Condition()
        self._thread = Thread(target=self._run, name="trace", daemon=True)
        if self._files:
            self._thread.start()

    @property
    def waiting(self) -> int:
        """Steps in the queue."""
        return len(self._waiting)

    def epoch_began(self, epoch: int) -> None:
        """Steps that follow are of the group that began in this epoch."""
        self._epoch = epoch

    def began(self, world_size: int, doing: Doing) -> None:
        """See `StepObserver.began`."""

    def stepped(self, step: ObservedStep) -> None:
        """See `StepObserver.stepped`."""
        if not self._files:
            return
        size = sum(len(record.payload) for record in step.records)
        with self._wake:
            full = len(self._waiting) >= WAITING_MAX or self._bytes + size > WAITING_BYTES_MAX
            # A step that alone is too large is taken when nothing else waits.
            if not self._closed and (not full or not self._waiting):
                self._waiting.append((self._epoch, size, step))
                self._bytes += size
                self._wake.notify()
                return
        for file in self._files:
            self._lost(file.sink)

    def close(self) -> bool:
        """Write what waits and end the files; may be called again.

        False when the disk did not take all of it in time: what still waits then is lost.
        """
        with self._wake:
            self._closed = True
            self._wake.notify()
        if not self._files:
            return True
        self._thread.join(self._close_s)
        with self._wake:
            late = len(self._waiting)
            self._waiting.clear()
        for file in self._files:
            for _ in range(late):
                self._lost(file.sink)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._waiting and not self._closed:
                    self._wake.wait()
                if not self._waiting:
                    break
                epoch, size, step = self._waiting.popleft()
            for file in self._files:
                if not file.write(epoch, step):
                    self._lost(file.sink)
            with self._wake:
                self._bytes -= size
        for file in self._files:
            file.close()
