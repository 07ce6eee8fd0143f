"""A worker's side of a recorded run again: a real worker core that is fed the taped frames.

The caller binds the core to a model, since the coordinator knows none; `WorkerSide` is what
worker/core.py's WorkerCore offers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from coordinator.frame_difference import NOTHING, FieldDifference, find_difference
from coordinator.recording import Recording
from coordinator.replay_result import Difference, ReplayResult, check_rank
from errors import TPError
from wire.connection import Connection
from wire.frame import Buffer, Frame, Kind, Side
from wire.session import Session


class OutgoingFrame(Protocol):
    """A frame that a worker wants sent."""

    @property
    def kind(self) -> Kind: ...
    @property
    def metadata(self) -> bytes: ...
    @property
    def payload(self) -> Buffer: ...
    @property
    def flags(self) -> int: ...


class AgreedFrame(Protocol):
    """What a worker demands of the next frame."""

    @property
    def metadata(self) -> bytes: ...
    @property
    def payload_bytes(self) -> int: ...


class WorkerSide(Protocol):
    """One rank without I/O; worker/core.py's WorkerCore is one."""

    def start(self) -> Sequence[OutgoingFrame]: ...
    def expected(self) -> AgreedFrame | None: ...
    def handle(self, frame: Frame) -> Sequence[OutgoingFrame]: ...


WorkerFactory = Callable[[int, Session], WorkerSide]


def replay_worker(
    recording: Recording, rank: int | None, open_worker: WorkerFactory
) -> ReplayResult:
    """Run one rank's worker again (all of them, one by one, when rank is None).

    Raises ConfigError for a rank that the recording does not have.
    """
    check_rank(recording, rank)
    ranks = range(recording.manifest.ranks) if rank is None else (rank,)
    frames = unread = 0
    for one in ranks:
        result = _replay_rank(recording, one, open_worker)
        frames += result.frames
        unread += result.unread
        if result.difference is not None:
            return ReplayResult(frames, result.difference, unread)
    return ReplayResult(frames, None, unread)


def _replay_rank(recording: Recording, rank: int, open_worker: WorkerFactory) -> ReplayResult:
    session = Session()
    replay = _WorkerReplay(open_worker(rank, session), Connection(Side.WORKER, session, rank))
    frames = 0
    for index, record in enumerate(recording.tape):
        if record.rank != rank:
            continue
        if record.sender is Side.COORDINATOR:
            refusal = replay.feed(record.raw)
            if refusal is not None:
                return ReplayResult(frames, Difference(index, rank, refusal))
            continue
        frames += 1
        what = find_difference(record.raw, replay.take())
        if what is not None:
            return ReplayResult(frames, Difference(index, rank, what))
    if replay.waiting and not recording.failed:
        what = FieldDifference("frame", NOTHING, f"{replay.waiting} more frames")
        return ReplayResult(frames, Difference(len(recording.tape), rank, what))
    return ReplayResult(frames, None, replay.waiting)


class _WorkerReplay:
    """A worker that is fed one frame after the other, and the frames it wants to send."""

    def __init__(self, worker: WorkerSide, connection: Connection) -> None:
        self._worker = worker
        self._connection = connection
        self._sent: list[bytes] = []
        self._send(worker.start())

    @property
    def waiting(self) -> int:
        return len(self._sent)

    def take(self) -> bytes:
        """The next frame that the worker sends; nothing when it has none to send."""
        return self._sent.pop(0) if self._sent else b""

    def feed(self, raw: bytes) -> FieldDifference | None:
        """Give the worker a frame; the difference is that it refuses what it once accepted."""
        self._connection.receive_data(raw)
        agreed = self._worker.expected()
        metadata, size = (agreed.metadata, agreed.payload_bytes) if agreed else (None, None)
        try:
            frame = self._connection.next_frame(metadata, size)
            if frame is None:
                return FieldDifference("frame", f"{len(raw)} bytes", "not a whole frame")
            self._send(self._worker.handle(frame))
        except TPError as refusal:
            return FieldDifference("frame", "accepted", f"refused: {refusal.diagnostics()}")
        return None

    def _send(self, outgoing: Sequence[OutgoingFrame]) -> None:
        for out in outgoing:
            buffers = self._connection.send(out.kind, out.metadata, out.payload, flags=out.flags)
            self._sent.append(b"".join(buffers))
