"""One end of a session without I/O: bytes in, frames out, and the only writer of the ledger.

`receive_data` only buffers; `next_frame` judges, advances the session and records. Arrival and
consumption are apart, so the order in which ranks are consumed is the caller's and never the
network's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from errors import ContractError, DeadlineError, MisuseError, PeerError, ProtocolError
from wire.canonical import decode_canonical
from wire.frame import TENSOR_KINDS, Buffer, Frame, FrameReader, Header, Kind, Side, encode
from wire.metadata import demand, parse, payload_bytes
from wire.recorder import Record, Recorder
from wire.session import HELLO_PHASE, Session, State

_AGREED_CACHE: Final = 1024


class Connection:
    """One end of one session.

    side: which end this is. rank: the worker's rank, None until HELLO told it (then the first
    records are held back until `identify`). recorder: where this run's frames are recorded, if so.
    """

    def __init__(
        self,
        side: Side,
        session: Session,
        rank: int | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.side = side
        self.session = session
        self.rank = rank
        self.reader = FrameReader()
        self._peer = side.other
        self._recorder = recorder
        self._identified = rank is not None
        self._held: list[Record] = []
        # The newest frame's record, and the phase in which it was due.
        self._last: Record | None = None
        self._last_phase = HELLO_PHASE
        self._failure: PeerError | None = None

    def identify(self, rank: int | None) -> None:
        """Write the records that were held back, with the rank that HELLO told.

        The coordinator calls this in rank order, so the ledger does not depend on who connected
        first. None: the run ended with a peer whose rank cannot be told.
        """
        if self._identified:
            raise MisuseError(f"the peer is already identified as rank {self.rank}")
        self._identified = True
        self.rank = rank
        held, self._held = self._held, []
        for record in held:
            self._write(record._replace(rank=rank))

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
        self._last_phase = phase
        recorder = self._recorder
        if recorder is not None:
            kept = None
            if recorder.keep_bytes:
                kept = bytes(buffers[1]) if header.payload_bytes else b""
            self._write(
                Record(self.side, self.rank, state, phase, header, metadata, kept, None, None)
            )
        return buffers

    def receive_data(self, data: Buffer) -> None:
        """Add bytes that arrived, cut anywhere."""
        self.reader.receive_data(data)

    def receive_eof(self) -> None:
        """The peer closed, or reset, the stream."""
        self.reader.receive_eof()

    @property
    def closed(self) -> bool:
        """Whether the session came to its clean end (S2)."""
        return self.session.state is State.CLOSED

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
            if reader.at_clean_end and session.state is State.IDLE:
                session.end(self._peer)
                return None
            frame = reader.next_frame(expected)
        except ProtocolError as error:
            raise self._refuse_unread(error) from None
        if frame is None:
            return None
        header, metadata, payload = frame
        state, phase = session.state, session.phase_name
        error_code = None
        try:
            session.check_and_advance(self._peer, header)
            if expected is not None and metadata != expected:
                demand(metadata, expected)
            if header.kind in TENSOR_KINDS:
                _demand_payload_bytes(frame, expected, payload_bytes)
        except ContractError as error:
            error_code = error.code
            self._failure = self._located(error, phase)
        self._last_phase = phase
        recorder = self._recorder
        if recorder is not None:
            kept = payload if recorder.keep_bytes else None
            self._write(
                Record(
                    self._peer, self.rank, state, phase, header, metadata, kept, error_code, None
                )
            )
        if self._failure is not None:
            raise self._failure
        return frame

    def fail(self, error: PeerError) -> PeerError:
        """Record a failure found outside; returns it with rank and phase, to be raised.

        A ContractError condemns the newest frame (the caller parsed it), a DeadlineError send the
        frame being written; any other error is a failed wait and becomes an entry of its own. The
        first failure stays.
        """
        if self._failure is not None:
            return self._failure
        if isinstance(error, ContractError) or error.code == "deadline.send":
            located = self._located(error, self._last_phase)
            if self._last is None or not self._amend(self._last, located.code):
                self._write_wait(located.code, None, b"")
        else:
            located = self._located(error, self.session.phase_name)
            self._write_wait(located.code, self.reader.header, self.reader.raw())
        self._failure = located
        return located

    def _refuse_unread(self, error: ProtocolError) -> PeerError:
        located = self._located(error, self.session.phase_name)
        self._write_wait(located.code, self.reader.header, self.reader.raw())
        self._failure = located
        return located

    def _located(self, error: PeerError, phase: str) -> PeerError:
        if isinstance(error, DeadlineError) and phase == HELLO_PHASE:
            error = DeadlineError("handshake", error.message)
        return error.located(self.rank, phase)

    def _write_wait(self, code: str, header: Header | None, raw: bytes) -> None:
        session = self.session
        self._write(
            Record(
                self._peer,
                self.rank,
                session.state,
                session.phase_name,
                header,
                None,
                None,
                code,
                raw,
            )
        )

    def _write(self, record: Record) -> None:
        self._last = record
        if self._recorder is None:
            return
        if self._identified:
            self._recorder.record(record)
        else:
            self._held.append(record)

    def _amend(self, record: Record, code: str) -> bool:
        if self._held:
            self._held[-1] = self._held[-1]._replace(error=code)
            return True
        return self._recorder is not None and self._recorder.amend(record, code)


def _demand_payload_bytes(frame: Frame, expected: bytes | None, agreed: int | None) -> None:
    """M3, after the metadata was judged (S5)."""
    received = frame.header.payload_bytes
    if expected is None:
        parse(frame.kind, frame.metadata)
    if agreed is None:
        agreed = (
            _announced_payload_bytes(frame.metadata)
            if expected is None
            else _agreed_payload_bytes(expected)
        )
    if received != agreed:
        raise ContractError(
            "metadata", f"payload: received {received} bytes, agreed {agreed} by its shape"
        )


def _announced_payload_bytes(metadata: bytes) -> int:
    value: dict[str, Any] = decode_canonical(metadata)
    return payload_bytes(tuple(value["shape"]), value["dtype"])


# Only for metadata of our own, so a peer cannot fill it.
_agreed_payload_bytes = lru_cache(maxsize=_AGREED_CACHE)(_announced_payload_bytes)
