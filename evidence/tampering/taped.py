"""The frames of a package's tapes, and altering them; ledger entries follow.

A frame with another body has the right lengths and checksum again, and its entry says so: what is
left wrong is what the frame says or carries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

from evidence.package import LEDGER, TAPE
from evidence.record import sha256_hex
from wire.canonical import decode_canonical, encode_canonical
from wire.checksum import crc32
from wire.frame import Kind
from wire.ledger import Entry, read_ledger
from wire.limits import HEADER, HEADER_BYTES
from wire.tape import TapeRecord, read_tape, write_tape

Files = dict[str, bytes]
Json = dict[str, Any]


class Taped(NamedTuple):
    """One record of a tape with its ledger entry."""

    record: TapeRecord
    entry: Entry


def case_path(case_id: str, name: str) -> str:
    return f"cases/{case_id}/{name}"


def payload_of(taped: Taped) -> bytes:
    return taped.record.raw[HEADER_BYTES + (taped.entry.metadata_bytes or 0) :]


def metadata_of(taped: Taped) -> Json:
    start = HEADER_BYTES + (taped.entry.metadata_bytes or 0)
    return dict(decode_canonical(taped.record.raw[HEADER_BYTES:start]))


def with_body(taped: Taped, metadata: Json | None = None, payload: bytes | None = None) -> Taped:
    """The frame with other metadata or payload: lengths, checksum and ledger entry follow."""
    old = HEADER.unpack_from(taped.record.raw)
    spelled = encode_canonical(metadata_of(taped) if metadata is None else metadata)
    body = payload_of(taped) if payload is None else payload
    checksum = crc32(body, crc32(spelled))
    header = HEADER.pack(*old[:6], len(spelled), len(body), checksum)
    entry = replace(
        taped.entry, metadata_bytes=len(spelled), payload_bytes=len(body), checksum=checksum
    )
    if entry.payload_sha256 is not None:
        entry = replace(entry, payload_sha256=sha256_hex(body))
    return Taped(taped.record._replace(raw=header + spelled + body), entry)


def with_header(taped: Taped, *, epoch: int | None = None, sequence: int | None = None) -> Taped:
    """The frame with another epoch or sequence; its ledger entry follows."""
    magic, version, kind, flags, old_epoch, old_sequence, *rest = HEADER.unpack_from(
        taped.record.raw
    )
    epoch = old_epoch if epoch is None else epoch
    sequence = old_sequence if sequence is None else sequence
    header = HEADER.pack(magic, version, kind, flags, epoch, sequence, *rest)
    raw = header + taped.record.raw[HEADER_BYTES:]
    return Taped(
        taped.record._replace(raw=raw), replace(taped.entry, epoch=epoch, sequence=sequence)
    )


def places(tape: list[Taped], kind: Kind) -> list[int]:
    """Where the frames of a kind stand."""
    return [index for index, taped in enumerate(tape) if taped.entry.kind == kind.name]


def nudged(data: bytes, element: int = 0) -> bytes:
    """One float32 replaced by its neighbour: the last bit of its mantissa flipped."""
    (bits,) = struct.unpack_from("<I", data, 4 * element)
    return data[: 4 * element] + struct.pack("<I", bits ^ 1) + data[4 * element + 4 :]


def read_taped(files: Files, case_id: str) -> list[Taped]:
    records = read_tape(files[case_path(case_id, TAPE)])
    entries = read_ledger(files[case_path(case_id, LEDGER)])
    return [Taped(*pair) for pair in zip(records, entries, strict=True)]


def write_taped(files: Files, case_id: str, tape: Iterable[Taped]) -> None:
    """Tape and ledger of a case; entries are numbered again."""
    tape = list(tape)
    files[case_path(case_id, TAPE)] = write_tape(taped.record for taped in tape)
    numbered = [replace(taped.entry, index=index) for index, taped in enumerate(tape)]
    files[case_path(case_id, LEDGER)] = b"".join(entry.to_line() for entry in numbered)
