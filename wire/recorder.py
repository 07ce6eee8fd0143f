"""What one run keeps of its frames: for its ledger and its tape, or its recent past.

Recording is one append of references: entries, digests and tape bytes are made when they are asked
for, so that a recorder costs a step almost nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from itertools import islice
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
# Of recent frames with payloads, unless told otherwise: many steps of a small model.
RECENT_BYTES: Final = 32 << 20
# What a record costs besides its metadata and payload, counted so that empty frames are bounded.
RECORD_BYTES: Final = 512


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
    and the last RECENT_ENTRIES_MAX records without their payloads. recent_bytes: instead of these,
    the newest frames with their payloads, as many as fit into so many bytes.
    """

    def __init__(self, keep_bytes: bool = True, *, recent_bytes: int | None = None) -> None:
        if keep_bytes and recent_bytes is not None:
            raise MisuseError("a recorder keeps every frame or the recent ones")
        if recent_bytes is not None and recent_bytes < 1:
            raise MisuseError(f"{recent_bytes} bytes hold no frame")
        self.keep_bytes = keep_bytes
        # Whether a record is wanted with its payload.
        self.with_payloads = keep_bytes or recent_bytes is not None
        self.frames = 0
        bounded = not self.with_payloads
        self._records: deque[Record] = deque(maxlen=RECENT_ENTRIES_MAX if bounded else None)
        # Of recent frames: what each of the records costs, and all of them.
        self._recent_bytes = recent_bytes
        self._sizes: deque[int] = deque()
        self._held_bytes = 0
        self._payload_bytes = 0
        self._headers = 0
        self._metadata_bytes = 0

    def kept(self, payload: Buffer) -> Buffer:
        """What a record of a sent payload holds; the sender may change its own afterwards.

        Of recent frames a read-only view is held as it is: nobody changes what it shows.
        """
        if self.keep_bytes:
            return bytes(payload)
        if not self.with_payloads:
            return b""
        is_view = isinstance(payload, memoryview) and payload.readonly
        return payload if is_view else bytes(payload)

    def record(self, record: Record) -> None:
        """Append; called by wire/connection.py alone."""
        self.frames += 1
        header = record.header
        if header is not None:
            self._headers += 1
            self._metadata_bytes += header.metadata_bytes
            self._payload_bytes += header.payload_bytes
        self._records.append(record)
        if self._recent_bytes is not None:
            size = RECORD_BYTES + len(record.payload) + len(record.raw or b"")
            self._forget(size if header is None else size + header.metadata_bytes)

    def amend(self, record: Record, error: str) -> bool:
        """Give the newest record its error, if it is `record`; whether it was."""
        if not self._records or self._records[-1] is not record:
            return False
        self._records[-1] = record._replace(error=error)
        return True

    @property
    def oldest(self) -> int:
        """Index of the oldest record that is kept; `frames` when none is."""
        return self.frames - len(self._records)

    def since(self, index: int) -> tuple[Record, ...]:
        """The records from `index` on, as far as they are kept; for the thread that records."""
        wanted = self.frames - max(index, self.oldest)
        newest = list(islice(reversed(self._records), wanted))
        newest.reverse()
        return tuple(newest)

    def _forget(self, size: int) -> None:
        """The newest record has `size` bytes: drop the oldest ones until the rest fits.

        The newest always stays, to be amended.
        """
        sizes, records = self._sizes, self._records
        sizes.append(size)
        held, limit = self._held_bytes + size, self._recent_bytes or 0
        while held > limit and len(records) > 1:
            records.popleft()
            held -= sizes.popleft()
        self._held_bytes = held

    def totals(self) -> Totals:
        """The accounting of the whole run (S14), kept or not."""
        return Totals(self._payload_bytes, self._headers * HEADER_BYTES, self._metadata_bytes)

    def entries(self) -> list[Entry]:
        """The ledger's entries; without kept bytes the recent ones, and no payload digests."""
        return [
            entry(self.oldest + at, record, with_digest=self.with_payloads)
            for at, record in enumerate(self._records)
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


def entry(index: int, record: Record, *, with_digest: bool) -> Entry:
    """What the ledger says of a record. with_digest: its payload was kept."""
    header = record.header
    is_tensor = header is not None and header.kind in TENSOR_KINDS
    tensor, shape = _tensor(record.metadata) if is_tensor and record.metadata else (None, None)
    digest = None
    if is_tensor and record.error is None and with_digest:
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
