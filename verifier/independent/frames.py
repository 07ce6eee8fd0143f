"""Frames (frame.md) and the tape that holds them (session.md S13)."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import canonical

MAGIC = b"RKPF"
VERSION = 1
HEADER = struct.Struct("!4sBBHQQIII")
MAX_METADATA_BYTES = 65_536
MAX_PAYLOAD_BYTES = 16_777_216
FOLDED = 1

KINDS = {
    1: "HELLO",
    2: "ACK",
    3: "WEIGHT",
    4: "LOAD",
    5: "INPUT",
    6: "COMMAND",
    7: "PARTIAL",
    8: "FENCE",
    9: "REDUCTION",
    10: "RESULT",
}
KIND_NUMBERS = {name: number for number, name in KINDS.items()}
WORKER_KINDS = frozenset({"HELLO", "PARTIAL", "FENCE", "RESULT"})
TENSOR_KINDS = frozenset({"WEIGHT", "INPUT", "PARTIAL", "REDUCTION", "RESULT"})
FOLDABLE_KINDS = frozenset({"PARTIAL", "REDUCTION"})

TAPE_MAGIC = b"RKPTAPE1"
RECORD = struct.Struct("!BHI")
DIRECTIONS = ("send", "receive")
# A valid clean case of four ranks has 76; a hostile tape of empty records is stopped here.
MAX_RECORDS = 1_024


@dataclass(frozen=True)
class Header:
    """The fields of the 36 bytes after magic and version (F2); `kind` is the name of F3."""

    kind: str
    flags: int
    epoch: int
    sequence: int
    metadata_bytes: int
    payload_bytes: int
    checksum: int


@dataclass(frozen=True)
class Reading:
    """What a reader makes of the bytes that one frame's turn has brought.

    `error` is the code of F7 or F8, or None. `header` is there when F7 steps 1 to 3 passed,
    `metadata` when all of F7 passed, `payload` when the body is complete; `consumed` is how many
    bytes were used.
    """

    error: str | None
    header: Header | None
    metadata: dict[str, Any] | None
    payload: bytes
    consumed: int


@dataclass(frozen=True)
class Record:
    """One record of the tape."""

    direction: str
    rank: int
    data: bytes


class TapeError(ValueError):
    """Bytes that are not a tape."""


def read_frame(data: bytes) -> Reading:
    """Reads one frame from a stream that holds `data` and then ends (F7, F8)."""
    if not data:
        return Reading("protocol.closed", None, None, b"", 0)
    for at, (got, wanted) in enumerate(zip(data, MAGIC, strict=False)):
        if got != wanted:
            return Reading("protocol.magic", None, None, b"", at + 1)
    if len(data) < HEADER.size:
        return Reading("protocol.truncated", None, None, b"", len(data))
    error, header = _read_header(data)
    if error is not None or header is None:
        return Reading(error, header, None, b"", HEADER.size)
    return _read_body(header, data)


def _read_header(data: bytes) -> tuple[str | None, Header | None]:
    _, version, kind, flags, epoch, sequence, metadata, payload, checksum = HEADER.unpack_from(data)
    if version != VERSION:
        return "protocol.version", None
    if kind not in KINDS:
        return "protocol.malformed", None
    name = KINDS[kind]
    header = Header(name, flags, epoch, sequence, metadata, payload, checksum)
    if flags & ~FOLDED or (flags and name not in FOLDABLE_KINDS):
        return "protocol.flags", header
    if metadata > MAX_METADATA_BYTES or payload > MAX_PAYLOAD_BYTES:
        return "protocol.size", header
    if payload and name not in TENSOR_KINDS:
        return "protocol.size", header
    return None, header


def _read_body(header: Header, data: bytes) -> Reading:
    split = HEADER.size + header.metadata_bytes
    end = split + header.payload_bytes
    if len(data) < end:
        return Reading("protocol.truncated", header, None, b"", len(data))
    payload = data[split:end]
    if zlib.crc32(data[HEADER.size : end]) != header.checksum:
        return Reading("protocol.checksum", header, None, payload, end)
    try:
        metadata = canonical.decode_object(data[HEADER.size : split])
    except canonical.CanonicalError as error:
        return Reading(error.code, header, None, payload, end)
    return Reading(None, header, metadata, payload, end)


def announced_payload_bytes(records: Iterable[Record]) -> int:
    """The payload bytes that the headers in these records announce (session.md S14)."""
    return sum(
        header.payload_bytes
        for record in records
        if len(record.data) >= HEADER.size and record.data.startswith(MAGIC)
        for header in (_read_header(record.data)[1],)
        if header is not None
    )


def write_frame(
    kind: str, epoch: int, sequence: int, metadata: bytes, payload: bytes = b"", flags: int = 0
) -> bytes:
    """The bytes of a frame (F1, F2, F5); used to say what a tape should hold."""
    body = metadata + payload
    header = HEADER.pack(
        MAGIC,
        VERSION,
        KIND_NUMBERS[kind],
        flags,
        epoch,
        sequence,
        len(metadata),
        len(payload),
        zlib.crc32(body),
    )
    return header + body


def read_tape(data: bytes) -> list[Record]:
    """The records of a tape.

    Raises:
        TapeError: wrong magic, impossible direction or length, a cut record, too many records.
    """
    if not data.startswith(TAPE_MAGIC):
        raise TapeError("the tape does not start with RKPTAPE1")
    records: list[Record] = []
    at = len(TAPE_MAGIC)
    while at < len(data):
        if len(records) == MAX_RECORDS:
            raise TapeError(f"more than {MAX_RECORDS} records")
        if len(data) - at < RECORD.size:
            raise TapeError(f"the head of record {len(records)} is cut")
        direction, rank, size = RECORD.unpack_from(data, at)
        at += RECORD.size
        if direction >= len(DIRECTIONS):
            raise TapeError(f"record {len(records)}: direction {direction}")
        if size > len(data) - at:
            raise TapeError(
                f"record {len(records)} announces {size} bytes, {len(data) - at} are left"
            )
        records.append(Record(DIRECTIONS[direction], rank, data[at : at + size]))
        at += size
    return records
