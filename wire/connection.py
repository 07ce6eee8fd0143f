"""One end of a session without I/O: bytes in, frames out, and the only writer of the ledger.

`receive_data` only buffers; `next_frame` judges, advances the session and records. Arrival and
consumption are apart, so the order in which ranks are consumed is the caller's and never the
network's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from errors import ContractError, DeadlineError, MisuseError, PeerError, ProtocolError
from wire.frame import TENSOR_KINDS, Buffer, Frame, Kind, Side, encode
from wire.frame_reader import FrameReader
from wire.metadata import demand, parse_tensor
from wire.recorder import Record, Recorder
from wire.session import HELLO_PHASE, Session, State

# Distinct tensors of one program: some tens for the block, a few per layer for a model.
_AGREED_SIZES_MAX: Final = 4096


class Connection:
    """One end of the session with one worker.

    side: which end this is. rank: the worker's. recorder: where the run's frames are recorded; the
    coordinator's ledger is the run's, so a worker has none.
    """

    def __init__(
        self, side: Side, session: Session, rank: int, recorder: Recorder | None = None
    ) -> None:
        self.side = side
        self.session = session
        self.rank = rank
        self.reader = FrameReader()
        self._peer = side.other
        self._recorder = recorder
        # The newest frame's record, and the phase in which it was due.
        self._newest: Record | None = None
        self._newest_phase = HELLO_PHASE
        # The last tensor metadata that nobody predicted, with its payload's length: a peer that
        # sends the same again (every step's INPUT) need not be parsed again.
        self._accepted: tuple[Kind, bytes, int] | None = None
        self._failure: PeerError | None = None

    def send(
        self, kind: Kind, metadata: bytes, payload: Buffer = b"", *, flags: int = 0
    ) -> list[Buffer]:
        """Stamp, record and advance; returns the buffers to write, in order.

        The payload is referred to, not copied: write it before changing it. MisuseError when the
        session does not allow the frame.
        """
        if self._failure is not None:
            raise MisuseError(f"send after a failure: {self._failure.diagnostics()}")
        session = self.session
        state, phase = session.state, session.phase_name
        epoch, sequence = session.stamp(self.side, kind, flags)
        header, buffers = encode(
            kind, flags=flags, epoch=epoch, sequence=sequence, metadata=metadata, payload=payload
        )
        self._newest_phase = phase
        recorder = self._recorder
        if recorder is not None:
            kept = recorder.kept(buffers[1]) if header.payload_bytes else b""
            self._newest = Record(
                self.side, self.rank, state, phase, header, metadata, kept, None, None
            )
            recorder.record(self._newest)
        return buffers

    def receive_data(self, data: Buffer) -> None:
        """Add bytes that arrived, cut anywhere."""
        self.reader.receive_data(data)

    def receive_eof(self, errno: int | None = None) -> None:
        """The peer closed the stream, or it broke with this error."""
        self.reader.receive_eof(errno)

    @property
    def closed(self) -> bool:
        """Whether the session came to its clean end (S2)."""
        return self.session.state is State.CLOSED

    @property
    def has_news(self) -> bool:
        """Whether `next_frame` may have anything to say before more bytes arrive."""
        return self._failure is not None or self.reader.has_bytes

    def next_frame(
        self, expected: bytes | None = None, payload_bytes: int | None = None
    ) -> Frame | None:
        """Judge the next frame and advance; None when more bytes are needed, or at the clean end.

        expected: the canonical metadata demanded (M5), None where the caller parses what came.
        payload_bytes: the payload's length demanded, None for what the metadata's shape says (M3).
        Raises ProtocolError or ContractError with rank and phase; the connection is dead then.
        """
        if self._failure is not None:
            raise self._failure
        reader, session = self.reader, self.session
        try:
            if reader.at_clean_end and session.state in _MAY_END:
                if not self.closed:
                    session.end(self._peer, reader.errno)
                return None
            known = self._accepted
            hint = expected if expected is not None or known is None else known[1]
            frame = reader.next_frame(hint)
        except ProtocolError as error:
            raise self._fail_wait(error) from None
        if frame is None:
            return None
        state, phase = session.state, session.phase_name
        error_code = None
        try:
            session.check_and_advance(self._peer, frame.header)
            if expected is not None and frame.metadata != expected:
                demand(frame.metadata, expected)
            if frame.header.kind in TENSOR_KINDS:
                self._demand_payload_bytes(frame, expected, payload_bytes)
        except ContractError as error:
            error_code = error.code
            self._failure = error.located(self.rank, phase)
        self._newest_phase = phase
        recorder = self._recorder
        if recorder is not None:
            header, metadata, payload = frame
            kept = payload if recorder.with_payloads else b""
            self._newest = Record(
                self._peer, self.rank, state, phase, header, metadata, kept, error_code, None
            )
            recorder.record(self._newest)
        if self._failure is not None:
            raise self._failure
        return frame

    def _demand_payload_bytes(
        self, frame: Frame, expected: bytes | None, agreed: int | None
    ) -> None:
        """M3, after the metadata was judged (S5)."""
        if expected is None:
            announced = self._announced_payload_bytes(frame.kind, frame.metadata)
            agreed = announced if agreed is None else agreed
        elif agreed is None:
            agreed = _agreed_payload_bytes(frame.kind, expected)
        received = frame.header.payload_bytes
        if received != agreed:
            raise ContractError("metadata", f"payload: received {received} bytes, agreed {agreed}")

    def _announced_payload_bytes(self, kind: Kind, metadata: bytes) -> int:
        known = self._accepted
        if known is None or known[0] is not kind or known[1] != metadata:
            size = parse_tensor(kind, metadata).payload_bytes
            known = self._accepted = (kind, metadata, size)
        return known[2]

    def fail(self, error: PeerError) -> PeerError:
        """Record a failure found outside; returns it with rank and phase, to be raised.

        A ContractError condemns the newest frame (the caller parsed it), a DeadlineError `send` the
        frame being written; any other error is a failed wait and becomes an entry of its own. The
        first failure stays.
        """
        if self._failure is not None:
            return self._failure
        if not isinstance(error, ContractError) and error.code != "deadline.send":
            return self._fail_wait(error)
        self._failure = _as_handshake(error, self._newest_phase).located(
            self.rank, self._newest_phase
        )
        if self._recorder is not None and not (
            self._newest is not None and self._recorder.amend(self._newest, self._failure.code)
        ):
            self._record_wait(self._failure.code)
        return self._failure

    def _fail_wait(self, error: PeerError) -> PeerError:
        """No frame could be read: S7's protocol and deadline families."""
        phase = self.session.phase_name
        self._failure = _as_handshake(error, phase).located(self.rank, phase)
        if self._recorder is not None:
            self._record_wait(self._failure.code)
        return self._failure

    def _record_wait(self, code: str) -> None:
        """S12: one entry with what was known of the frame that did not come, or was refused."""
        if self._recorder is None:
            return
        session, reader = self.session, self.reader
        self._recorder.record(
            Record(
                self._peer,
                self.rank,
                session.state,
                session.phase_name,
                reader.header,
                None,
                b"",
                code,
                reader.raw() if self._recorder.with_payloads else b"",
            )
        )


# Where the end of the stream may be clean; session.end decides whose end it is.
_MAY_END: Final = (State.IDLE, State.CLOSED)


def _as_handshake(error: PeerError, phase: str) -> PeerError:
    """S7: until ACK was sent, any deadline is the handshake's."""
    if isinstance(error, DeadlineError) and phase == HELLO_PHASE:
        return DeadlineError("handshake", error.message, rank=error.rank, errno=error.errno)
    return error


@lru_cache(maxsize=_AGREED_SIZES_MAX)
def _agreed_payload_bytes(kind: Kind, expected: bytes) -> int:
    """Of metadata of our own only, so that a peer cannot fill the cache."""
    return parse_tensor(kind, expected).payload_bytes
