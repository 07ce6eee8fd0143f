"""A worker's side of a recorded run again: a real worker that is fed the taped frames.

The worker is whatever answers at the other end of a pipe: a process, or a core in memory. It must
not know how one is started; the caller passes that in.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from coordinator.frame_difference import find_difference
from coordinator.recording import Recording
from coordinator.replay_result import Difference, ReplayResult, check_rank
from errors import DeadlineError, ProtocolError
from wire.frame import Side
from wire.frame_reader import FrameReader
from wire.limits import READ_BYTES
from wire.link import Pipe

# A fresh worker of a rank, as a pipe to it; leaving the context ends the worker.
WorkerOpener = Callable[[int], AbstractContextManager[Pipe]]

# For one frame. Not the recorded deadline: that may be short on purpose, in a run with a fault.
_WAIT_S: Final = 30.0


def replay_worker(
    recording: Recording, rank: int | None, open_worker: WorkerOpener
) -> ReplayResult:
    """Run one rank's worker again (all of them, one by one, when rank is None).

    Compares every frame it sends. What a failed run left unread is not known and not compared.
    Raises ConfigError for a rank that the recording does not have, PeerError when a worker can't be
    reached at all.
    """
    check_rank(recording, rank)
    frames = 0
    for one in range(recording.manifest.ranks) if rank is None else (rank,):
        with open_worker(one) as pipe:
            result = _replay_rank(recording, one, pipe)
        frames += result.frames
        if result.difference is not None:
            return ReplayResult(frames, result.difference)
    return ReplayResult(frames, None)


def _replay_rank(recording: Recording, rank: int, pipe: Pipe) -> ReplayResult:
    worker = _Replayed(pipe)
    frames = 0
    for index, record in enumerate(recording.tape):
        if record.rank != rank:
            continue
        if record.sender is Side.COORDINATOR:
            pipe.send([record.raw], pipe.clock() + _WAIT_S)
            continue
        frames += 1
        what = find_difference(record.raw, worker.next_frame())
        if what is not None:
            return ReplayResult(frames, Difference(index, rank, what))
    return ReplayResult(frames, None)


class _Replayed:
    """What a worker sends, one frame at a time."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._reader = FrameReader()

    def next_frame(self) -> bytes:
        """The bytes of the next frame; what there is of one at the end, or when nothing comes."""
        deadline = self._pipe.clock() + _WAIT_S
        try:
            while (frame := self._reader.next_frame()) is None:
                data = self._pipe.receive(READ_BYTES, deadline)
                if data:
                    self._reader.receive_data(data)
                else:
                    self._reader.receive_eof()
        except (ProtocolError, DeadlineError):
            return self._reader.raw()
        return b"".join((frame.header.to_bytes(), frame.metadata, frame.payload))
