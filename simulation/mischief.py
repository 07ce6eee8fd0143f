"""Workers that break the protocol in ways of which no case of the evidence is made.

Each is a rewriting of what a rank writes: from one whole outgoing frame to the bytes that travel.
Together with the eight faults they are what scenarios are told with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from simulation.faults import (
    CHECKSUM_FIELD,
    METADATA_FIELD,
    SEQUENCE_FIELD,
    Parts,
    take_apart,
    with_metadata,
)
from simulation.pipe import Rewrite
from wire.canonical import decode_canonical
from wire.checksum import crc32
from wire.frame import Kind
from wire.limits import HEADER_BYTES

# From a frame's parts and bytes to what is written in its place.
Mischief = Callable[[Parts, bytes], bytes]


def _repeated(parts: Parts, raw: bytes) -> bytes:
    """The frame, and again with the next sequence: well-formed, and late."""
    fields = list(parts.fields)
    fields[SEQUENCE_FIELD] += 1
    return raw + Parts(parts.kind, tuple(fields), parts.metadata, parts.payload).joined()


def _dropped(parts: Parts, raw: bytes) -> bytes:
    return b""


def _http(parts: Parts, raw: bytes) -> bytes:
    """Another protocol: somebody's health check, say."""
    return b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _newer(parts: Parts, raw: bytes) -> bytes:
    """A worker of the next version of the protocol."""
    return raw[:4] + b"\x02" + raw[5:]


def _huge(parts: Parts, raw: bytes) -> bytes:
    """A header that announces the largest metadata there could be."""
    return raw[:24] + b"\xff\xff\xff\xff" + raw[28:HEADER_BYTES]


def _other_value(parts: Parts, raw: bytes) -> bytes:
    """One bit of the first element; the checksum is right, so only its meaning is wrong."""
    payload = bytes([parts.payload[0] ^ 1]) + parts.payload[1:]
    changed = Parts(parts.kind, parts.fields, parts.metadata, payload)
    return with_metadata(changed, decode_canonical(parts.metadata)).joined()


def _stray(parts: Parts, raw: bytes) -> bytes:
    """Whoever it is, it believes to be another rank."""
    return with_metadata(parts, decode_canonical(parts.metadata) | {"rank": 7}).joined()


def _extra_key(parts: Parts, raw: bytes) -> bytes:
    return with_metadata(parts, decode_canonical(parts.metadata) | {"note": "hello"}).joined()


def _spaced(parts: Parts, raw: bytes) -> bytes:
    """The same JSON in another spelling."""
    metadata = parts.metadata.replace(b":", b": ")
    fields = list(parts.fields)
    fields[METADATA_FIELD] = len(metadata)
    fields[CHECKSUM_FIELD] = crc32(parts.payload, crc32(metadata))
    return Parts(parts.kind, tuple(fields), metadata, parts.payload).joined()


MISCHIEFS: Final[dict[str, Mischief]] = {
    "repeats": _repeated,
    "drops": _dropped,
    "http": _http,
    "newer_version": _newer,
    "huge": _huge,
    "other_value": _other_value,
    "stray": _stray,
    "extra_key": _extra_key,
    "spaced": _spaced,
}


def rewriting(name: str, kind: Kind, occurrence: int) -> Rewrite:
    """Applies a mischief to the frame of that kind which the rank sends as number `occurrence`."""
    seen = 0

    def rewrite(raw: bytes) -> bytes:
        nonlocal seen
        parts = take_apart(raw)
        if parts.kind is not kind:
            return raw
        seen += 1
        return MISCHIEFS[name](parts, raw) if seen == occurrence else raw

    return rewrite
