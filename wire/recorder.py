"""What one run keeps of its frames, for its ledger and its tape.

Recording is one append of references: entries, digests and tape bytes are made when they are asked
for, so that a recorder costs a step almost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

from errors import MisuseError
from wire.canonical import decode_canonical
from wire.frame import TENSOR_KINDS, Buffer, Header, Side
from wire.ledger import RECEIVE, SEND, Entry, Totals
from wire.limits import HEADER_BYTES
from wire.metadata import is_shape, is_string
from wire.session import State
from wire.tape import TapeRecord, write_tape

# An incident report shows how a conversation ended: the last step or two of the largest program.
RECENT_ENTRIES_MAX: Final = 512


class Record(NamedTuple):
    """One frame, or one failed wait, as the connection saw it.

    header: None where none was read. metadata: None unless the frame passed F7. payload: empty when
    bytes are not kept. raw: the bytes of a frame that did not pass F7, else None.
    """

    sender: Side
    rank: int
    state: State
    phase: str
    header: Header | None
    metadata: bytes | None
    payload: Buffer
    error: str | None
    raw: bytes | None


class Recorder:
    """Keeps the records of all connections of one run, in the order in which they are consumed.

    keep_bytes: keep every frame, for `ledger()` and `tape()`. Without it memory is bounded: counts,
    and the last RECENT_ENTRIES_MAX records without their payloads.
    """

    def __init__(self, keep_bytes: bool = True) -> None:
        self.keep_bytes = keep_bytes
        self.frames = 0
        self._records: deque[Record] = deque(maxlen=None if keep_bytes else RECENT_ENTRIES_MAX)
        self._payload_bytes = 0
        self._headers = 0
        self._metadata_bytes = 0

    def record(self, record: Record) -> None:
        """Append; called by wire/connection.py alone."""
        self.frames += 1
        header = record.header
        if header is not None:
            self._headers += 1
            self._metadata_bytes += header.metadata_bytes
            self._payload_bytes += header.payload_bytes
        self._records.append(record)

    def amend(self, record: Record, error: str) -> bool:
        """Give the newest record its error, if it is `record`; whether it was."""
        if not self._records or self._records[-1] is not record:
            return False
        self._records[-1] = record._replace(error=error)
        return True

    def totals(self) -> Totals:
        """The accounting of the whole run (S14), kept or not."""
        return Totals(self._payload_bytes, self._headers * HEADER_BYTES, self._metadata_bytes)

    def entries(self) -> list[Entry]:
        """The ledger's entries; without kept bytes the recent ones, and no payload digests."""
        first = self.frames - len(self._records)
        return [
            _entry(first + at, record, self.keep_bytes) for at, record in enumerate(self._records)
        ]

    def ledger(self) -> bytes:
        """The ledger file of the run."""
        return b"".join(entry.to_line() for entry in self.entries())

    def tape(self) -> bytes:
        """The tape file of the run; only with kept bytes."""
        if not self.keep_bytes:
            raise MisuseError("a recorder without kept bytes has no tape")
        return write_tape(self._tape_records())

    def _tape_records(self) -> Iterator[TapeRecord]:
        for record in self._records:
            yield TapeRecord(record.sender, record.rank, _raw(record))


def _raw(record: Record) -> bytes:
    if record.raw is not None:
        return record.raw
    if record.header is None:
        return b""
    return b"".join((record.header.to_bytes(), record.metadata or b"", record.payload))


def _entry(index: int, record: Record, keep_bytes: bool) -> Entry:
    header = record.header
    is_tensor = header is not None and header.kind in TENSOR_KINDS
    tensor, shape = _tensor(record.metadata) if is_tensor and record.metadata else (None, None)
    digest = None
    if is_tensor and record.error is None and keep_bytes:
        digest = sha256(record.payload).hexdigest()
    return Entry(
        index=index,
        direction=SEND if record.sender is Side.COORDINATOR else RECEIVE,
        rank=record.rank,
        kind=None if header is None else header.kind.name,
        flags=None if header is None else header.flags,
        epoch=None if header is None else header.epoch,
        sequence=None if header is None else header.sequence,
        state=record.state.name,
        phase=record.phase,
        tensor=tensor,
        shape=shape,
        metadata_bytes=None if header is None else header.metadata_bytes,
        payload_bytes=None if header is None else header.payload_bytes,
        checksum=None if header is None else header.checksum,
        payload_sha256=digest,
        error=record.error,
    )


def _tensor(metadata: bytes) -> tuple[str | None, tuple[int, ...] | None]:
    """Name and shape as the metadata gives them; a refused frame may give neither."""
    value = decode_canonical(metadata)
    tensor, shape = value.get("tensor"), value.get("shape")
    return (
        tensor if is_string(tensor) else None,
        tuple(shape) if is_shape(shape) else None,
    )
