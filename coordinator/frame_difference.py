"""Where two frames first differ, in words: a header field, a metadata key or an element. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from coordinator.taped_frame import RawHeader, TapedFrame, take_apart
from coordinator.tensor_text import read_values
from manifest.value_rules import shown
from wire.canonical import spelled
from wire.limits import HEADER_BYTES

# In the order that explains most: lengths and checksum only follow from what comes before them.
_FIELDS_FIRST: Final = ("magic", "version", "kind", "flags", "epoch", "sequence")
_FIELDS_LAST: Final = ("metadata_bytes", "payload_bytes", "checksum")
NOTHING: Final = "(nothing)"


@dataclass(frozen=True)
class FieldDifference:
    """One field of a frame with both its values, as text."""

    field: str
    taped: str
    replayed: str


def find_difference(taped: bytes, replayed: bytes) -> FieldDifference | None:
    """The first difference between two frames; None when they are the same bytes."""
    if taped == replayed:
        return None
    if not taped or not replayed:
        return FieldDifference("frame", _summary(taped), _summary(replayed))
    left, right = take_apart(taped), take_apart(replayed)
    length = FieldDifference("length", f"{len(taped)} bytes", f"{len(replayed)} bytes")
    if left.header is None or right.header is None or _one_is_cut(taped, replayed):
        return length
    difference = _header_difference(left.header, right.header, _FIELDS_FIRST)
    # A frame that was refused at its header has no body to compare.
    if min(len(taped), len(replayed)) > HEADER_BYTES:
        difference = difference or _metadata_difference(left, right)
        difference = difference or _payload_difference(left, right)
    return difference or _header_difference(left.header, right.header, _FIELDS_LAST) or length


def _one_is_cut(taped: bytes, replayed: bytes) -> bool:
    return taped.startswith(replayed) or replayed.startswith(taped)


def _summary(raw: bytes) -> str:
    header = take_apart(raw).header
    if header is None:
        return f"{len(raw)} bytes" if raw else NOTHING
    return f"{_kind(header)} of {len(raw)} bytes"


def _kind(header: RawHeader) -> str:
    return header.kind_name or str(header.kind)


def _header_difference(
    left: RawHeader, right: RawHeader, fields: tuple[str, ...]
) -> FieldDifference | None:
    for field in fields:
        taped, replayed = getattr(left, field), getattr(right, field)
        if taped != replayed and field == "kind":
            return FieldDifference(field, _kind(left), _kind(right))
        if taped != replayed:
            return FieldDifference(field, shown(taped), shown(replayed))
    return None


def _metadata_difference(left: TapedFrame, right: TapedFrame) -> FieldDifference | None:
    if left.metadata == right.metadata:
        return None
    taped, replayed = left.metadata_fields(), right.metadata_fields()
    if taped is None or replayed is None:
        at = _first_unequal(left.metadata, right.metadata)
        return _byte_difference("metadata", at, left.metadata, right.metadata)
    for key in sorted(taped.keys() | replayed.keys()):
        values = [
            shown(spelled(fields[key])) if key in fields else NOTHING
            for fields in (taped, replayed)
        ]
        if key not in taped or key not in replayed or taped[key] != replayed[key]:
            return FieldDifference(f"metadata {shown(key)}", *values)
    return FieldDifference("metadata", "another spelling", "another spelling")


def _payload_difference(left: TapedFrame, right: TapedFrame) -> FieldDifference | None:
    if left.payload == right.payload:
        return None
    at = _first_unequal(left.payload, right.payload)
    taped = read_values(left.payload, left.dtype)
    replayed = read_values(right.payload, right.dtype)
    if taped is None or replayed is None or left.dtype != right.dtype:
        return _byte_difference("payload", at, left.payload, right.payload)
    index = at // taped.itemsize
    values = [
        f"{float(numbers[index]).hex()} = {numbers[index]!r}" if index < len(numbers) else NOTHING
        for numbers in (taped, replayed)
    ]
    return FieldDifference(f"payload element {index}", *values)


def _byte_difference(name: str, at: int, left: bytes, right: bytes) -> FieldDifference:
    values = [f"0x{data[at]:02x}" if at < len(data) else NOTHING for data in (left, right)]
    return FieldDifference(f"{name} byte {at}", *values)


def _first_unequal(left: bytes, right: bytes) -> int:
    """Index of the first unequal byte; the shorter length when one begins with the other."""
    low, high = 0, min(len(left), len(right))
    if left[:high] == right[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if left[low:middle] != right[low:middle] else (middle, high)
    return low
