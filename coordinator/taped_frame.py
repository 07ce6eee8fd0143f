"""One tape record taken apart; nothing is judged, since a taped frame may be a broken one."""

from __future__ import annotations

from typing import Final, NamedTuple

from errors import ProtocolError
from wire.canonical import JsonValue, decode_canonical
from wire.frame import Kind
from wire.limits import HEADER, HEADER_BYTES

_KIND_NAMES: Final = {int(kind): kind.name for kind in Kind}


class RawHeader(NamedTuple):
    """The fields of docs/spec/frame.md, F2, as they stand in the bytes."""

    magic: bytes
    version: int
    kind: int
    flags: int
    epoch: int
    sequence: int
    metadata_bytes: int
    payload_bytes: int
    checksum: int

    @property
    def kind_name(self) -> str | None:
        return _KIND_NAMES.get(self.kind)


class TapedFrame(NamedTuple):
    """header: None for a record shorter than one. metadata, payload: as far as the record goes."""

    header: RawHeader | None
    metadata: bytes
    payload: bytes

    def metadata_fields(self) -> dict[str, JsonValue] | None:
        """The metadata's keys and values; None when it isn't canonical JSON."""
        try:
            return decode_canonical(self.metadata)
        except ProtocolError:
            return None

    @property
    def dtype(self) -> str:
        """Element type of the payload as the metadata says; empty where it says none."""
        value = (self.metadata_fields() or {}).get("dtype")
        return value if isinstance(value, str) else ""


def take_apart(raw: bytes) -> TapedFrame:
    """The parts of a record, by the lengths that its own header announces."""
    if len(raw) < HEADER_BYTES:
        return TapedFrame(None, b"", b"")
    header = RawHeader._make(HEADER.unpack_from(raw))
    start = HEADER_BYTES + header.metadata_bytes
    return TapedFrame(header, raw[HEADER_BYTES:start], raw[start:])
