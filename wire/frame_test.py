"""Fields to bytes: layout, what is not copied, and what our own code may not send."""

from __future__ import annotations

import zlib
from array import array
from typing import Any

import pytest

from errors import MisuseError
from testdata.vectors.reading import vectors
from wire.frame import TENSOR_KINDS, Buffer, Header, Kind, Side, encode, flat
from wire.limits import FLAG_FOLDED, HEADER, HEADER_BYTES, METADATA_BYTES_MAX, PAYLOAD_BYTES_MAX


def test_header_is_36_bytes() -> None:
    assert HEADER.size == HEADER_BYTES == 36


@pytest.mark.parametrize("vector", vectors("frames.json"), ids=lambda vector: str(vector["id"]))
def test_encoding_the_frames_of_a_vector_gives_its_bytes(vector: dict[str, Any]) -> None:
    stream = bytes.fromhex(vector["stream"])
    encoded = b""
    for fields in vector["frames"]:
        header, buffers = encode(
            Kind[fields["kind"]],
            flags=fields["flags"],
            epoch=fields["epoch"],
            sequence=fields["sequence"],
            metadata=fields["metadata"].encode("ascii"),
            payload=bytes.fromhex(fields["payload"]),
        )
        assert header.checksum == fields["checksum"]
        encoded += b"".join(buffers)
    assert stream.startswith(encoded)


def test_the_payload_is_referred_to_and_not_copied() -> None:
    payload = bytearray(b"abcd")
    _, buffers = encode(Kind.INPUT, epoch=1, sequence=0, metadata=b"{}", payload=payload)
    payload[0] = ord("z")
    assert bytes(buffers[1]) == b"zbcd"


def test_a_payload_of_wider_items_counts_in_bytes() -> None:
    payload = memoryview(array("f", [1.0, 2.0, 3.0]))
    header, buffers = encode(Kind.INPUT, epoch=1, sequence=0, metadata=b"{}", payload=payload)
    assert header.payload_bytes == 12
    assert len(buffers[1]) == 12
    assert header.checksum == zlib.crc32(b"{}" + payload.tobytes())


def test_header_to_bytes_is_what_was_sent() -> None:
    header, buffers = encode(Kind.ACK, epoch=2**63, sequence=5, metadata=b"{}")
    assert header == Header(Kind.ACK, 0, 2**63, 5, 2, 0, zlib.crc32(b"{}"))
    assert bytes(buffers[0])[:HEADER_BYTES] == header.to_bytes()


@pytest.mark.parametrize("kind", Kind)
def test_only_partial_and_reduction_may_be_folded(kind: Kind) -> None:
    if kind in (Kind.PARTIAL, Kind.REDUCTION):
        header, _ = encode(kind, flags=FLAG_FOLDED, epoch=1, sequence=0, metadata=b"{}")
        assert header.flags == FLAG_FOLDED
    else:
        with pytest.raises(MisuseError):
            encode(kind, flags=FLAG_FOLDED, epoch=1, sequence=0, metadata=b"{}")


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in TENSOR_KINDS])
def test_only_tensor_kinds_carry_a_payload(kind: Kind) -> None:
    with pytest.raises(MisuseError):
        encode(kind, epoch=1, sequence=0, metadata=b"{}", payload=b"\0")


@pytest.mark.parametrize(
    ("metadata", "payload"),
    [
        (b" " * (METADATA_BYTES_MAX + 1), b""),
        (b"{}", bytes(PAYLOAD_BYTES_MAX + 1)),
    ],
    ids=["metadata", "payload"],
)
def test_what_is_too_large_is_not_sent(metadata: bytes, payload: bytes) -> None:
    with pytest.raises(MisuseError):
        encode(Kind.INPUT, epoch=1, sequence=0, metadata=metadata, payload=payload)


def test_the_largest_frame_is_sent() -> None:
    payload = bytes(PAYLOAD_BYTES_MAX)
    metadata = b" " * METADATA_BYTES_MAX
    header, _ = encode(Kind.INPUT, epoch=1, sequence=0, metadata=metadata, payload=payload)
    assert (header.metadata_bytes, header.payload_bytes) == (65_536, 16_777_216)


@pytest.mark.parametrize(
    ("payload", "flat_bytes"),
    [
        (b"abc", b"abc"),
        (memoryview(bytes(12)).cast("f", (3, 1)), bytes(12)),
        (memoryview(array("d")), b""),
    ],
    ids=["bytes", "two dimensions", "empty"],
)
def test_flat(payload: Buffer, flat_bytes: bytes) -> None:
    assert bytes(flat(payload)) == flat_bytes


def test_a_payload_with_gaps_is_refused() -> None:
    with pytest.raises(MisuseError):
        flat(memoryview(bytes(8))[::2])


def test_directions() -> None:
    senders = {kind.name: kind.sender for kind in Kind}
    worker = {name for name, side in senders.items() if side is Side.WORKER}
    assert worker == {"HELLO", "PARTIAL", "FENCE", "RESULT"}
    assert {kind.name for kind in Kind if kind.is_tensor} == {
        "WEIGHT",
        "INPUT",
        "PARTIAL",
        "REDUCTION",
        "RESULT",
    }
    assert Side.WORKER.other is Side.COORDINATOR
    assert Side.COORDINATOR.other is Side.WORKER
