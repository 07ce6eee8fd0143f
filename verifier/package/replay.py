"""A tape read again: every record through the wire's own reader, session and ledger writer.

The coordinator's frames are read as a worker would, the workers' as the coordinator would; both
ends of a connection share one session, as S1's table does not know whose side it is on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from errors import DeadlineError, PeerError
from verifier.package.script import Step
from wire.connection import Connection
from wire.frame import KIND_OF, Kind, Side
from wire.ledger import Entry
from wire.limits import HEADER, HEADER_BYTES, MAGIC, VERSION
from wire.recorder import Recorder
from wire.session import Session
from wire.tape import TapeRecord


@dataclass(frozen=True)
class RawFrame:
    """One record taken apart by what its own header announces; nothing is judged.

    kind: None without a header that F7's steps 1 to 3 accept. whole: all announced bytes are there,
    and no more.
    """

    record: TapeRecord
    kind: Kind | None
    epoch: int
    sequence: int
    metadata: bytes
    payload: bytes
    whole: bool


def take_apart(record: TapeRecord) -> RawFrame:
    raw = record.raw
    if len(raw) < HEADER_BYTES:
        return RawFrame(record, None, 0, 0, b"", b"", False)
    magic, version, number, _, epoch, sequence, metadata_bytes, payload_bytes, _ = (
        HEADER.unpack_from(raw)
    )
    if magic != MAGIC or version != VERSION or number not in KIND_OF:
        return RawFrame(record, None, 0, 0, b"", b"", False)
    start = HEADER_BYTES + metadata_bytes
    whole = len(raw) == start + payload_bytes
    metadata, payload = raw[HEADER_BYTES:start], raw[start:]
    return RawFrame(record, KIND_OF[number], epoch, sequence, metadata, payload, whole)


@dataclass(frozen=True)
class Replay:
    """entries: the ledger that the tape's records give, up to the first refused one.

    left: for each of these records, how many of its bytes stand after its frame.
    """

    ledger: bytes
    entries: tuple[Entry, ...]
    left: tuple[int, ...]


def replay(
    records: Sequence[TapeRecord],
    script: Sequence[Step],
    phases: tuple[str, ...],
    timed_out: bool,
) -> Replay:
    """Judge the records in order; each frame must say what `script` has at its place.

    A place is a position in the frames of one rank in one direction. timed_out: the run ended at a
    deadline, which a tape can't show; otherwise what is missing of a frame never came (F8).
    """
    recorder = Recorder(keep_bytes=True)
    sessions: dict[int, Session] = {}
    ends: dict[tuple[int, Side], Connection] = {}
    agreed: dict[tuple[int, Side], list[Step]] = {}
    for planned in script:
        agreed.setdefault((planned.rank, planned.sender), []).append(planned)
    left: list[int] = []
    for number, record in enumerate(records, 1):
        place = (record.rank, record.sender)
        if place not in ends:
            session = sessions.setdefault(record.rank, Session(phases))
            ends[place] = Connection(record.sender.other, session, record.rank, recorder)
        expected = agreed.get(place, [])
        step = expected.pop(0) if expected else None
        late = timed_out and number == len(records)
        if not _read(ends[place], record.raw, step, late):
            left.append(0)
            break
        left.append(len(ends[place].reader.raw()))
        if left[-1]:
            break
    entries = tuple(recorder.entries())
    return Replay(b"".join(entry.to_line() for entry in entries), entries, tuple(left))


def _read(connection: Connection, raw: bytes, step: Step | None, late: bool) -> bool:
    """Take one record's frame; whether it was accepted. Either way one entry is written."""
    expected = (None, None) if step is None else step.agreed
    connection.receive_data(raw)
    try:
        frame = connection.next_frame(*expected)
        if frame is None and late:
            raise connection.fail(DeadlineError("receive", "the rest did not come in time"))
        if frame is None:
            connection.receive_eof()
            frame = connection.next_frame(*expected)
    except PeerError:
        return False
    return frame is not None
