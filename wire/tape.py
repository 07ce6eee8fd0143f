"""The tape (docs/spec/session.md S13): the raw bytes behind every ledger entry, in their order."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from errors import EvidenceError, MisuseError
from wire.frame import Side
from wire.limits import HEADER_BYTES, METADATA_BYTES_MAX, PAYLOAD_BYTES_MAX, RANK_MAX

TAPE_MAGIC: Final = b"RKPTAPE1"
RAW_BYTES_MAX: Final = HEADER_BYTES + METADATA_BYTES_MAX + PAYLOAD_BYTES_MAX
_HEAD: Final = Struct("!BHI")
_SENDERS: Final = (Side.COORDINATOR, Side.WORKER)


class TapeRecord(NamedTuple):
    """One frame, or what there was of it, as it travelled. rank: the worker's."""

    sender: Side
    rank: int
    raw: bytes


def write_tape(records: Iterable[TapeRecord]) -> bytes:
    """The bytes of a tape; MisuseError on a rank or a length that S13 cannot hold."""
    parts = [TAPE_MAGIC]
    for sender, rank, raw in records:
        if not 0 <= rank <= RANK_MAX or len(raw) > RAW_BYTES_MAX:
            raise MisuseError(f"a tape cannot hold {len(raw)} bytes of rank {rank}")
        parts.append(_HEAD.pack(_SENDERS.index(sender), rank, len(raw)))
        parts.append(raw)
    return b"".join(parts)


def read_tape(data: bytes) -> list[TapeRecord]:
    """The records of a tape; EvidenceError tape when the bytes break S13."""
    if not data.startswith(TAPE_MAGIC):
        raise EvidenceError("tape", f"a tape begins with {TAPE_MAGIC!r}, this with {data[:8]!r}")
    records: list[TapeRecord] = []
    at = len(TAPE_MAGIC)
    while at < len(data):
        start = at + _HEAD.size
        if start > len(data):
            raise EvidenceError("tape", f"record {len(records)}: cut at byte {len(data)}")
        direction, rank, size = _HEAD.unpack_from(data, at)
        if direction >= len(_SENDERS):
            raise EvidenceError(
                "tape", f"record {len(records)}: direction = {direction}: not 0 or 1"
            )
        if size > RAW_BYTES_MAX or size > len(data) - start:
            raise EvidenceError("tape", f"record {len(records)}: {size} bytes: more than there are")
        at = start + size
        records.append(TapeRecord(_SENDERS[direction], rank, data[start:at]))
    return records
