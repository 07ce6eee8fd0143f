"""The ledger recomputed from the tape (session.md S12): every record is read and judged again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import frames
from frames import HEADER, Header, Reading, Record
from session import Session

MAX_NAME_CHARS = 256
MAX_DIMENSIONS = 4


@dataclass(frozen=True)
class Step:
    """One frame of a session as the program predicts it.

    `phase` is the ledger's, `metadata` the canonical bytes; `payload_bytes` follows from the shape.
    """

    direction: str
    rank: int
    kind: str
    phase: str
    epoch: int
    sequence: int
    metadata: bytes
    payload_bytes: int


@dataclass(frozen=True)
class Turn:
    """One record, read: the state it met, the frame predicted there, the code of its refusal."""

    record: Record
    reading: Reading
    state: str
    phase: str
    step: Step | None
    refusal: str | None


def replay(
    records: Sequence[Record],
    connections: Mapping[int, Sequence[Step]],
    phases: Sequence[str],
    epoch: int,
    deadline: bool = False,
) -> list[Turn]:
    """Reads and judges the records in order, each on the session of its rank.

    `deadline` says that the run ended at one, which a tape doesn't show: what is missing of the
    last frame then had not come in time, while otherwise the stream had ended. A refused frame
    changes no state, as the connection is dead after it.
    """
    sessions: dict[int, Session] = {}
    taken: dict[int, int] = {}
    turns: list[Turn] = []
    for number, record in enumerate(records, 1):
        session = sessions.setdefault(record.rank, Session(phases, epoch))
        connection = connections.get(record.rank, ())
        at = taken.get(record.rank, 0)
        step = connection[at] if at < len(connection) else None
        reading = frames.read_frame(record.data)
        refusal = _refusal(record, reading, session, step)
        if deadline and number == len(records):
            refusal = _late(record, refusal, session)
        turns.append(Turn(record, reading, session.state, session.phase, step, refusal))
        if refusal is None and reading.header is not None:
            session.accept(record.direction, reading.header)
            taken[record.rank] = at + 1
    return turns


def _refusal(record: Record, reading: Reading, session: Session, step: Step | None) -> str | None:
    """The code of F7 or F8, else of the session, else of the metadata and the payload (S5)."""
    if reading.error is not None or reading.header is None:
        return reading.error
    refused = session.judge(record.direction, reading.header)
    if refused is not None:
        return refused
    agreed = (
        step is not None
        and metadata_bytes(record.data, reading.header) == step.metadata
        and len(reading.payload) == step.payload_bytes
    )
    return None if agreed else "contract.metadata"


def _late(record: Record, refusal: str | None, session: Session) -> str | None:
    """S7: the code of the last frame of a run that ended at a deadline."""
    missing = record.direction == "send" or refusal in ("protocol.closed", "protocol.truncated")
    if not missing:
        return refusal
    return "deadline.handshake" if session.phase == "hello" else f"deadline.{record.direction}"


def metadata_bytes(data: bytes, header: Header) -> bytes:
    """The metadata of a frame as it stands in its bytes."""
    return data[HEADER.size : HEADER.size + header.metadata_bytes]


def entry(index: int, turn: Turn) -> dict[str, Any]:
    """The ledger entry of a turn, with the keys of S12."""
    header, metadata = turn.reading.header, turn.reading.metadata
    tensor = header is not None and header.kind in frames.TENSOR_KINDS
    named = metadata if tensor and metadata is not None else {}
    payload = turn.reading.payload if tensor and turn.refusal is None else None
    return {
        "index": index,
        "direction": turn.record.direction,
        "rank": turn.record.rank,
        "kind": None if header is None else header.kind,
        "flags": None if header is None else header.flags,
        "epoch": None if header is None else header.epoch,
        "sequence": None if header is None else header.sequence,
        "state": turn.state,
        "phase": turn.phase,
        "tensor": _name(named.get("tensor")),
        "shape": _shape(named.get("shape")),
        "metadata_bytes": None if header is None else header.metadata_bytes,
        "payload_bytes": None if header is None else header.payload_bytes,
        "payload_sha256": None if payload is None else hashlib.sha256(payload).hexdigest(),
        "checksum": None if header is None else header.checksum,
        "error": turn.refusal,
    }


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= MAX_NAME_CHARS else None


def _shape(value: Any) -> list[int] | None:
    """A shape as M2 and M3 say, 0 allowed, else None."""
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_DIMENSIONS:
        return None
    return value if all(type(each) is int and each >= 0 for each in value) else None


@dataclass(frozen=True)
class Accounts:
    """Frames and bytes of a run (S14), counted from the headers in the tape."""

    frames_sent: int
    frames_received: int
    payload_bytes: int
    header_bytes: int
    metadata_bytes: int


def accounts(turns: Iterable[Turn]) -> Accounts:
    directions: list[str] = []
    payload = metadata = 0
    for turn in turns:
        header = turn.reading.header
        if header is not None:
            directions.append(turn.record.direction)
            payload += header.payload_bytes
            metadata += header.metadata_bytes
    return Accounts(
        directions.count("send"),
        directions.count("receive"),
        payload,
        HEADER.size * len(directions),
        metadata,
    )
