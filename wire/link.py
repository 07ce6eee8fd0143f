"""A connection on a pipe: whole frames, each wait with one absolute deadline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from errors import DeadlineError, MisuseError, PeerError
from wire.connection import Connection
from wire.frame import Buffer, Frame, Kind
from wire.limits import READ_BYTES


class Pipe(Protocol):
    """A byte stream with deadlines. Implementations inherit from this class, for `receive_into`.

    Deadlines are absolute, on the monotonic clock that `clock` reads, in seconds.
    """

    def send(self, buffers: list[Buffer], deadline: float) -> None:
        """Write all of it; DeadlineError send. A broken stream is not reported here (S7)."""

    def send_some(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """Write what is taken without waiting; what is left. All, where no write ever waits."""
        self.send(list(buffers), self.clock())
        return ()

    def receive(self, limit: int, deadline: float) -> bytes:
        """1 to `limit` bytes, as soon as there are any; b"" at the end; DeadlineError receive."""
        raise NotImplementedError

    def receive_into(self, space: memoryview, deadline: float) -> int:
        """As `receive`, but written at the start of `space`; returns the count, 0 at the end."""
        data = self.receive(len(space), deadline)
        space[: len(data)] = data
        return len(data)

    def broken_by(self) -> int | None:
        """The first error number with which the stream broke; None if none, or an orderly end."""
        return None

    def clock(self) -> float:
        """The monotonic time now."""
        raise NotImplementedError

    def close(self) -> None:
        """Close this end; may be called again."""

    def fileno(self) -> int:
        """The descriptor to poll, or -1 if there is none."""
        raise NotImplementedError


class Link:
    """Sends and receives the frames of one session over one pipe."""

    def __init__(self, connection: Connection, pipe: Pipe) -> None:
        self.connection = connection
        self.pipe = pipe
        self._held: list[Buffer] = []

    def send(
        self,
        kind: Kind,
        metadata: bytes,
        payload: Buffer = b"",
        *,
        flags: int = 0,
        hold: bool = False,
        deadline: float,
    ) -> None:
        """Write one frame; DeadlineError, recorded and located. A broken write shows at a read.

        hold: more follows at once, so the frame goes out with the next one. Frames that the peer
        can only use together then cost it one wake-up instead of several.
        """
        self._held += self.connection.send(kind, metadata, payload, flags=flags)
        if hold:
            return
        buffers, self._held = self._held, []
        try:
            self.pipe.send(buffers, deadline)
        except DeadlineError as error:
            # Of another rank, noticed during this write: judged and recorded there.
            if error.rank is not None:
                raise
            raise self.connection.fail(error) from None

    def receive(
        self,
        expected: bytes | None = None,
        payload_bytes: int | None = None,
        *,
        deadline: float,
    ) -> Frame:
        """The next frame, judged as in `Connection.next_frame`; PeerError, recorded and located."""
        frame = self.receive_or_end(expected, payload_bytes, deadline=deadline)
        if frame is None:
            raise MisuseError("the session ended; receive_or_end is for the side that may see this")
        return frame

    def receive_or_end(
        self,
        expected: bytes | None = None,
        payload_bytes: int | None = None,
        *,
        deadline: float,
    ) -> Frame | None:
        """As `receive`, but None when the coordinator ended the session cleanly (S2)."""
        if self._held:
            raise MisuseError("a held frame must go out before an answer is awaited")
        connection, pipe = self.connection, self.pipe
        has_read = False
        while True:
            if connection.has_news:
                frame = connection.next_frame(expected, payload_bytes)
                if frame is not None or connection.closed:
                    return frame
            try:
                # S8: a peer that never lets a read block does not extend the wait either.
                if has_read and pipe.clock() >= deadline:
                    raise DeadlineError("receive", "bytes trickled in, but no frame was complete")
                self._read_once(pipe, deadline)
            except DeadlineError as error:
                raise connection.fail(error) from None
            has_read = True

    def _read_once(self, pipe: Pipe, deadline: float) -> None:
        reader = self.connection.reader
        space = reader.space()
        if space is not None:
            count = pipe.receive_into(space, deadline)
            reader.received(count)
        else:
            data = pipe.receive(READ_BYTES, deadline)
            count = len(data)
            reader.receive_data(data)
        if count == 0:
            reader.receive_eof(pipe.broken_by())

    def close(self) -> None:
        """Close the pipe; may be called again."""
        self.pipe.close()

    def fail(self, error: PeerError) -> PeerError:
        """See `Connection.fail`."""
        return self.connection.fail(error)
