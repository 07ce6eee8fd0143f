"""Edits of a sample package: one thing altered, and what follows from it made to follow."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import canonical
import frames
import ledger
from frames import Record
from matrix import full_matrix
from sample_package import Files, Json, ledger_of, lines, parsed, tape, turns_of


def edit_json(files: Files, path: str, edit: Callable[[Json], None]) -> None:
    """Applies `edit` to the one object of a JSON file."""
    (value,) = parsed(files[path])
    edit(value)
    files[path] = lines([value])


def edit_record(files: Files, case: str, **changed: Any) -> None:
    """Changes keys of a case's record."""
    records = parsed(files["cases.jsonl"])
    for record in records:
        if record["case"] == case:
            record |= changed
    files["cases.jsonl"] = lines(records)


def edit_tape(files: Files, case: str, edit: Callable[[list[Record]], None]) -> None:
    """Applies `edit` to the records of a tape, then makes ledger and accounts follow it."""
    path = f"cases/{case}/tape.bin"
    records = frames.read_tape(files[path])
    edit(records)
    files[path] = tape(records)
    turns = turns_of(full_matrix()[case], records)
    files[f"cases/{case}/ledger.jsonl"] = ledger_of(turns)
    edit_record(files, case, **vars(ledger.accounts(turns)))


def with_payload(record: Record, payload: bytes) -> Record:
    """The same frame with another payload and a checksum that fits it."""
    reading = frames.read_frame(record.data)
    if reading.header is None:
        raise ValueError("no frame")
    header = reading.header
    metadata = ledger.metadata_bytes(record.data, header)
    data = frames.write_frame(header.kind, header.epoch, header.sequence, metadata, payload)
    return Record(record.direction, record.rank, data)


def with_metadata(record: Record, **changed: Any) -> Record:
    """The same frame with other metadata and a checksum that fits it."""
    reading = frames.read_frame(record.data)
    if reading.header is None or reading.metadata is None:
        raise ValueError("no frame")
    header = reading.header
    metadata = canonical.encode(reading.metadata | changed)
    data = frames.write_frame(header.kind, header.epoch, header.sequence, metadata, reading.payload)
    return Record(record.direction, record.rank, data)


def payload(record: Record) -> bytes:
    return frames.read_frame(record.data).payload


def nudged(data: bytes, element: int = 0) -> bytes:
    """One binary32 element moved to its neighbour."""
    (bits,) = struct.unpack_from("<I", data, 4 * element)
    return data[: 4 * element] + struct.pack("<I", bits ^ 1) + data[4 * element + 4 :]


def indices(files: Files, case: str, kind: str) -> list[int]:
    """Where the tape has frames of a kind."""
    found = frames.read_tape(files[f"cases/{case}/tape.bin"])
    headers = [frames.read_frame(record.data).header for record in found]
    return [at for at, header in enumerate(headers) if header and header.kind == kind]
