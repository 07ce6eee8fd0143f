"""The pipe of a replayed coordinator: a rank's frames come from the tape, what is sent is dropped.

A recorder behind the connection keeps what the coordinator sends; this pipe only has to end, or to
fall silent, where the recorded run did.
"""

from __future__ import annotations

from coordinator.recording import Recording
from errors import DeadlineError
from wire.frame import Buffer, Side
from wire.ledger import SEND
from wire.link import Pipe


class TapedPipe(Pipe):
    """One rank of a recording. Time stands still, so no deadline passes by itself."""

    def __init__(self, recording: Recording, rank: int) -> None:
        worker_frames = (
            record.raw
            for record in recording.tape
            if record.rank == rank and record.sender is Side.WORKER
        )
        self._waiting = memoryview(b"".join(worker_frames))
        self._sends_left = sum(
            1 for entry in recording.entries if entry.rank == rank and entry.direction == SEND
        )
        last = recording.entries[-1]
        self._end = last.error if last.rank == rank else None

    def send(self, buffers: list[Buffer], deadline: float) -> None:
        """Drops the frame; fails where the recorded write failed."""
        self._sends_left -= 1
        if self._sends_left == 0 and self._end == "deadline.send":
            raise DeadlineError("send", "as recorded")

    def receive(self, limit: int, deadline: float) -> bytes:
        """The rank's next bytes, then the end of the stream, or silence where that was recorded."""
        if not self._waiting and (self._end or "").startswith("deadline."):
            raise DeadlineError("receive", "as recorded")
        piece, self._waiting = bytes(self._waiting[:limit]), self._waiting[limit:]
        return piece

    def clock(self) -> float:
        return 0.0

    def close(self) -> None:
        """Nothing to let go of."""

    def fileno(self) -> int:
        return -1
