"""The ledger recomputed from the tape (session.md S12): every record is read and judged again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import frames
from frames import HEADER, Header, Reading, Record
from session import Session


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
    records: Iterable[Record],
    connections: Mapping[int, Sequence[Step]],
    phases: Sequence[str],
    epoch: int,
    nothing_came: str,
) -> list[Turn]:
    """Reads and judges the records in order, each on the session of its rank.

    `nothing_came` is the code for a receive without bytes: a tape alone can't tell the end of a
    stream from a deadline. A refused frame changes no state, as the connection is dead after it.
    """
    sessions: dict[int, Session] = {}
    taken: dict[int, int] = {}
    turns: list[Turn] = []
    for record in records:
        session = sessions.setdefault(record.rank, Session(phases, epoch))
        connection = connections.get(record.rank, ())
        at = taken.get(record.rank, 0)
        step = connection[at] if at < len(connection) else None
        reading = frames.read_frame(record.data)
        refusal = _refusal(record, reading, session, step, nothing_came)
        turns.append(Turn(record, reading, session.state, session.phase, step, refusal))
        if refusal is None and reading.header is not None:
            session.accept(record.direction, reading.header)
            taken[record.rank] = at + 1
    return turns


def _refusal(
    record: Record, reading: Reading, session: Session, step: Step | None, nothing_came: str
) -> str | None:
    if not record.data:
        return nothing_came
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


def metadata_bytes(data: bytes, header: Header) -> bytes:
    """The metadata of a frame as it stands in its bytes."""
    return data[HEADER.size : HEADER.size + header.metadata_bytes]


def entry(index: int, turn: Turn) -> dict[str, Any]:
    """The ledger entry of a turn, with the keys of S12."""
    header, metadata = turn.reading.header, turn.reading.metadata
    tensor = header is not None and header.kind in frames.TENSOR_KINDS and metadata is not None
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
        "tensor": metadata.get("tensor") if tensor and metadata is not None else None,
        "shape": metadata.get("shape") if tensor and metadata is not None else None,
        "metadata_bytes": None if header is None else header.metadata_bytes,
        "payload_bytes": None if header is None else header.payload_bytes,
        "checksum": None if header is None else header.checksum,
        "error": turn.refusal,
    }


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
