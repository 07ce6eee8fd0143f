"""Frames (docs/spec/frame.md): what they are, and fields to bytes. wire/frame_reader.py reads them.

Knows nothing of sessions: whether a frame is the agreed one is judged by wire/session.py.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

from errors import MisuseError
from wire.checksum import crc32
from wire.limits import (
    FLAG_FOLDED,
    HEADER,
    MAGIC,
    METADATA_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    VERSION,
)

Buffer: TypeAlias = bytes | bytearray | memoryview


class Side(Enum):
    """The two ends of a connection."""

    WORKER = "worker"
    COORDINATOR = "coordinator"

    # Members are singletons; Enum's own hash is a Python call, and these are keys of hot tables.
    __hash__ = object.__hash__

    @property
    def other(self) -> Side:
        return Side.COORDINATOR if self is Side.WORKER else Side.WORKER


class Kind(IntEnum):
    """F3."""

    HELLO = 1
    ACK = 2
    WEIGHT = 3
    LOAD = 4
    INPUT = 5
    COMMAND = 6
    PARTIAL = 7
    FENCE = 8
    REDUCTION = 9
    RESULT = 10

    @property
    def sender(self) -> Side:
        """The only side that sends this kind."""
        return Side.WORKER if self in _FROM_WORKER else Side.COORDINATOR

    @property
    def is_tensor(self) -> bool:
        """Whether a frame of this kind carries a tensor as its payload."""
        return self in TENSOR_KINDS


TENSOR_KINDS: Final = frozenset(
    {Kind.WEIGHT, Kind.INPUT, Kind.PARTIAL, Kind.REDUCTION, Kind.RESULT}
)
_FROM_WORKER: Final = frozenset({Kind.HELLO, Kind.PARTIAL, Kind.FENCE, Kind.RESULT})
_FOLDABLE: Final = frozenset({Kind.PARTIAL, Kind.REDUCTION})
KIND_OF: Final[dict[int, Kind]] = {int(kind): kind for kind in Kind}
FLAGS_ALLOWED: Final = {kind: FLAG_FOLDED if kind in _FOLDABLE else 0 for kind in Kind}
PAYLOAD_LIMITS: Final = {kind: PAYLOAD_BYTES_MAX if kind in TENSOR_KINDS else 0 for kind in Kind}


class Header(NamedTuple):
    """The fields of F2 after magic and version."""

    kind: Kind
    flags: int
    epoch: int
    sequence: int
    metadata_bytes: int
    payload_bytes: int
    checksum: int

    def to_bytes(self) -> bytes:
        """The 36 bytes of the header."""
        return HEADER.pack(MAGIC, VERSION, *self)


class Frame(NamedTuple):
    """One frame that passed F7. A memoryview payload is read-only and owned by the frame."""

    header: Header
    metadata: bytes
    payload: bytes | memoryview

    @property
    def kind(self) -> Kind:
        return self.header.kind


def encode(
    kind: Kind,
    *,
    flags: int = 0,
    epoch: int,
    sequence: int,
    metadata: bytes,
    payload: Buffer = b"",
) -> tuple[Header, list[Buffer]]:
    """The header and the buffers to write, in order; the payload is not copied.

    Metadata must be canonical and at most METADATA_BYTES_MAX; a payload must be C-contiguous and at
    most PAYLOAD_BYTES_MAX, and empty unless the kind carries a tensor. MisuseError otherwise.
    """
    data = payload if type(payload) is bytes else flat(payload)
    payload_bytes = len(data)
    if flags & ~FLAGS_ALLOWED[kind]:
        raise MisuseError(f"{kind.name} cannot carry flags {flags}")
    if len(metadata) > METADATA_BYTES_MAX:
        raise MisuseError(f"{kind.name} metadata of {len(metadata)} bytes is too large")
    if payload_bytes > PAYLOAD_LIMITS[kind]:
        raise MisuseError(f"{kind.name} payload of {payload_bytes} bytes is too large")
    checksum = crc32(data, crc32(metadata))
    header = Header(kind, flags, epoch, sequence, len(metadata), payload_bytes, checksum)
    head = HEADER.pack(MAGIC, VERSION, *header) + metadata
    return header, [head, data] if payload_bytes else [head]


def flat(payload: Buffer) -> Buffer:
    """The payload as a one-dimensional buffer of bytes, not copied; MisuseError if it has gaps."""
    view = memoryview(payload)
    if not view.c_contiguous:
        raise MisuseError("a payload must be C-contiguous")
    return view.cast("B") if view.nbytes else b""
