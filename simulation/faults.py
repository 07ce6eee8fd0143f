"""The eight faults of docs/spec/evidence.md: deciding where one strikes, and applying it.

A fault wraps a worker's pipe from outside; nothing in the worker or the coordinator knows of it.
Deciding is pure (`strikes`): which outgoing frame of which phase. Applying is one function per
kind, from the frame's bytes to what is really written. The same wrapper serves real processes and
the simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from wire.canonical import JsonObject, decode_canonical, encode_canonical
from wire.checksum import crc32
from wire.frame import Buffer, Kind
from wire.limits import FLAG_FOLDED, HEADER, HEADER_BYTES, MAGIC
from wire.session import PLAN_PHASE


class FaultKind(StrEnum):
    RANK_EXIT = "rank_exit"
    TRUNCATED_FRAME = "truncated_frame"
    CHECKSUM_CORRUPTION = "checksum_corruption"
    STALE_EPOCH = "stale_epoch"
    DUPLICATE_SEQUENCE = "duplicate_sequence"
    METADATA_MISMATCH = "metadata_mismatch"
    DELAY = "delay"
    CANCELLATION_RACE = "cancellation_race"


@dataclass(frozen=True)
class Fault:
    """kind strikes in `phase`; world_size is needed to name another rank.

    epoch: of the step it strikes in; None for the first step that has the phase.
    """

    kind: FaultKind
    phase: str
    world_size: int
    epoch: int | None = None


class RankEnded(Exception):
    """The faulty rank is to end now: its stream ends, its process exits."""


class FaultTarget(Protocol):
    """What a fault does to the world: write bytes, or stay silent until the peer is gone."""

    def write(self, data: bytes) -> None: ...

    def wait_for_hangup(self) -> None: ...


@dataclass(frozen=True)
class Parts:
    """One outgoing frame, taken apart."""

    kind: Kind
    fields: tuple[int, ...]
    metadata: bytes
    payload: bytes

    def joined(self) -> bytes:
        return HEADER.pack(MAGIC, *self.fields) + self.metadata + self.payload


FLAGS_FIELD, EPOCH_FIELD, SEQUENCE_FIELD = 2, 3, 4
METADATA_FIELD, PAYLOAD_FIELD, CHECKSUM_FIELD = 5, 6, 7


def take_apart(raw: bytes) -> Parts:
    """Header fields after the magic (version, kind, flags, epoch, sequence, sizes, checksum)."""
    fields = HEADER.unpack(raw[:HEADER_BYTES])[1:]
    split = HEADER_BYTES + fields[METADATA_FIELD]
    return Parts(Kind(fields[1]), fields, raw[HEADER_BYTES:split], raw[split:])


def split_frames(data: bytes) -> Iterator[bytes]:
    """The frames of a write; a worker may write several at once."""
    while data:
        fields = HEADER.unpack(data[:HEADER_BYTES])[1:]
        size = HEADER_BYTES + fields[METADATA_FIELD] + fields[PAYLOAD_FIELD]
        yield data[:size]
        data = data[size:]


def strikes(fault: Fault, raw: bytes) -> bool:
    """Whether this outgoing frame is the one the fault hits (F or L of the specification).

    A folded PARTIAL is its own fence: the first and the last frame of its phase.
    """
    parts = take_apart(raw)
    phase = decode_canonical(parts.metadata).get("phase")
    if phase != fault.phase or parts.kind not in (Kind.PARTIAL, Kind.FENCE, Kind.RESULT):
        return False
    if fault.epoch not in (None, parts.fields[EPOCH_FIELD]):
        return False
    folded = bool(parts.fields[FLAGS_FIELD] & FLAG_FOLDED)
    # In the phase of the plan a rank owes one frame, the first and the last.
    if fault.kind is FaultKind.CANCELLATION_RACE or phase == PLAN_PHASE:
        return parts.kind in (Kind.FENCE, Kind.RESULT) or folded
    return parts.kind in (Kind.PARTIAL, Kind.RESULT)


def _replaced(parts: Parts, field: int, value: int) -> Parts:
    fields = list(parts.fields)
    fields[field] = value
    return Parts(parts.kind, tuple(fields), parts.metadata, parts.payload)


def _truncated(parts: Parts, fault: Fault, target: FaultTarget) -> None:
    half = (len(parts.metadata) + 1) // 2
    target.write(parts.joined()[: HEADER_BYTES + half])
    raise RankEnded(fault.kind)


def _exits(parts: Parts, fault: Fault, target: FaultTarget) -> None:
    raise RankEnded(fault.kind)


def _corrupted(parts: Parts, fault: Fault, target: FaultTarget) -> None:
    raw = bytearray(parts.joined())
    raw[-1] ^= 1
    target.write(bytes(raw))


def _stale_epoch(parts: Parts, fault: Fault, target: FaultTarget) -> None:
    target.write(_replaced(parts, EPOCH_FIELD, parts.fields[EPOCH_FIELD] - 1).joined())


def _duplicate_sequence(parts: Parts, fault: Fault, target: FaultTarget) -> None:
    target.write(_replaced(parts, SEQUENCE_FIELD, parts.fields[SEQUENCE_FIELD] - 1).joined())


def with_metadata(parts: Parts, metadata: JsonObject) -> Parts:
    """The frame with other metadata, whole in itself: lengths and checksum are those of it."""
    encoded = encode_canonical(metadata)
    changed = Parts(parts.kind, parts.fields, encoded, parts.payload)
    changed = _replaced(changed, METADATA_FIELD, len(encoded))
    return _replaced(changed, CHECKSUM_FIELD, crc32(changed.payload, crc32(encoded)))


def _other_rank(parts: Parts, fault: Fault, target: FaultTarget) -> None:
    metadata = decode_canonical(parts.metadata)
    rank = metadata["rank"]
    # A world of one has no other rank to name, so that one names a rank that does not exist.
    metadata["rank"] = (int(str(rank)) + 1) % max(2, fault.world_size)
    target.write(with_metadata(parts, metadata).joined())


def _delayed(parts: Parts, fault: Fault, target: FaultTarget) -> None:
    """The frame is held until the coordinator is gone; then it is too late, and still written."""
    target.wait_for_hangup()
    target.write(parts.joined())
    raise RankEnded(fault.kind)


def _cancelled(parts: Parts, fault: Fault, target: FaultTarget) -> None:
    target.wait_for_hangup()
    raise RankEnded(fault.kind)


APPLY: dict[FaultKind, Callable[[Parts, Fault, FaultTarget], None]] = {
    FaultKind.RANK_EXIT: _exits,
    FaultKind.TRUNCATED_FRAME: _truncated,
    FaultKind.CHECKSUM_CORRUPTION: _corrupted,
    FaultKind.STALE_EPOCH: _stale_epoch,
    FaultKind.DUPLICATE_SEQUENCE: _duplicate_sequence,
    FaultKind.METADATA_MISMATCH: _other_rank,
    FaultKind.DELAY: _delayed,
    FaultKind.CANCELLATION_RACE: _cancelled,
}


class FaultInjector:
    """Passes a rank's frames through, except the one its fault strikes."""

    def __init__(self, fault: Fault, target: FaultTarget) -> None:
        self._fault = fault
        self._target = target
        self.struck = False

    def send(self, buffers: Sequence[Buffer]) -> None:
        """One or several whole frames. Raises RankEnded when the rank is to end here."""
        for raw in split_frames(b"".join(buffers)):
            if self.struck or not strikes(self._fault, raw):
                self._target.write(raw)
                continue
            self.struck = True
            APPLY[self._fault.kind](take_apart(raw), self._fault, self._target)
