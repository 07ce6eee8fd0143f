"""Vectors of docs/spec/frame.md: streams, the frames in them, and the code that ends them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from testdata.vectors.vector_file import (
    FOLDED,
    KINDS,
    TENSOR_KINDS,
    VectorFile,
    canonical,
    frame,
    tensor_metadata,
)

NOTES = {
    "AfterFirstFrame": "A reader that judges only the first frame of a stream.",
    "Boundary": "An off-by-one at a limit, at a header's end or at a body's end.",
    "ChecksumCoverage": "A checksum over the wrong bytes, or in the wrong order.",
    "HostileLength": "Memory set aside for an announced length before it is judged (F7 step 5).",
    "LooseCanonical": "A reader that takes any JSON (F7 step 7).",
    "LooseHeader": "A header field that is not checked.",
    "OrderOfChecks": "Two faults at once: the first step of F7 decides.",
    "Resync": "A reader that looks for the next frame after a refusal (F9).",
    "Shape": "A frame as the protocol sends it.",
}
FLOATS = struct.pack("<4f", 0.0, 1.0, -2.5, 1e30)
TENSOR = tensor_metadata("attention", "attention.partial", [1, 1, 4])
PARTIAL = frame("PARTIAL", TENSOR, FLOATS)
FENCE = frame(
    "FENCE",
    canonical({"phase": "attention", "rank": 0, "report": None, "tensors": 1}),
    sequence=1,
)
HELLO = frame("HELLO", canonical({"byte_order": "little", "dtype": "<f4", "rank": 0}), epoch=0)


def frame_vectors() -> VectorFile:
    """All of them, numbered in order."""
    vectors = [*_valid(), *_ends(), *_headers(), *_sizes(), *_checksums(), *_forms(), *_streams()]
    return VectorFile(
        "A stream of bytes that ends after its last byte: the frames in it, and the code of F7 or "
        "F8 that refuses the next one.",
        NOTES,
        [{"id": f"frame-{at:03}", **vector} for at, vector in enumerate(vectors, 1)],
    )


def _stream(
    comment: str,
    flags: list[str],
    frames: list[bytes],
    code: str | None = None,
    refused: bytes = b"",
    ignored: bytes = b"",
) -> dict[str, Any]:
    """Good frames, then (with a code) a refused one, then bytes that nobody may look at.

    `refused` is exactly what S13 puts on the tape for the refused frame.
    """
    return {
        "comment": comment,
        "flags": flags,
        "stream": (b"".join(frames) + refused + ignored).hex(),
        "frames": [_fields(good) for good in frames],
        "result": "valid" if code is None else "invalid",
        "code": code,
        "refused_bytes": len(refused),
    }


def _fields(good: bytes) -> dict[str, Any]:
    _, _, kind, flags, epoch, sequence, size, _, checksum = struct.unpack("!4sBBHQQIII", good[:36])
    return {
        "kind": KINDS[kind - 1],
        "flags": flags,
        "epoch": epoch,
        "sequence": sequence,
        "checksum": checksum,
        "metadata": good[36 : 36 + size].decode("ascii"),
        "payload": good[36 + size :].hex(),
    }


def _valid() -> Iterator[dict[str, Any]]:
    yield _stream("HELLO of rank 0", ["Shape"], [HELLO])
    yield _stream("PARTIAL with four floats", ["Shape"], [PARTIAL])
    for kind in KINDS:
        yield _stream(f"the smallest {kind}", ["Shape"], [frame(kind)])
    for kind in ("PARTIAL", "REDUCTION"):
        yield _stream(f"{kind} with FOLDED", ["Shape"], [frame(kind, TENSOR, FLOATS, flags=FOLDED)])
    top = 2**64 - 1
    yield _stream(
        "largest epoch and sequence", ["Boundary"], [frame("FENCE", epoch=top, sequence=top)]
    )
    yield _stream(
        "a payload that looks like a frame", ["Resync"], [frame("INPUT", b"{}", HELLO), FENCE]
    )
    yield _stream("three frames without a gap", ["AfterFirstFrame"], [HELLO, PARTIAL, FENCE])
    yield _stream("a payload of one byte", ["Boundary"], [frame("WEIGHT", b"{}", b"\xff")])


def _ends() -> Iterator[dict[str, Any]]:
    closed, truncated = "protocol.closed", "protocol.truncated"
    yield _stream("nothing at all", ["Boundary"], [], closed)
    for size in (1, 3, 4, 5, 35, 36, 37, len(HELLO) - 1):
        yield _stream(f"HELLO cut after {size} bytes", ["Boundary"], [], truncated, HELLO[:size])
    body = 36 + len(TENSOR)
    for size in (body - 1, body, body + 1, len(PARTIAL) - 1):
        yield _stream(
            f"PARTIAL cut after {size} bytes", ["Boundary"], [], truncated, PARTIAL[:size]
        )
    yield _stream(
        "a frame, then the head of one", ["AfterFirstFrame"], [PARTIAL], truncated, FENCE[:36]
    )


def _headers() -> Iterator[dict[str, Any]]:
    magic, malformed, flags = "protocol.magic", "protocol.malformed", "protocol.flags"
    for at in range(4):
        wrong = bytearray(HELLO)
        wrong[at] ^= 0x20
        yield _stream(
            f"byte {at} of the magic is wrong",
            ["LooseHeader"],
            [],
            magic,
            bytes(wrong[: at + 1]),
            bytes(wrong[at + 1 :]),
        )
    yield _stream("an HTTP request", ["LooseHeader"], [], magic, b"G", b"ET / HTTP/1.1\r\n\r\n")
    yield _stream("a TLS greeting", ["LooseHeader"], [], magic, b"\x16", b"\x03\x01\x02\x00")
    yield _stream("right, then wrong, then nothing", ["Boundary"], [], magic, b"RKQ")
    for version in (0, 2, 255):
        yield _refused_header(f"version {version}", "protocol.version", version=version)
    for number in (0, 11, 255):
        yield _refused_header(f"kind {number}", malformed, kind=number)
    for bits in (2, 3, 0x100, 0x8000, 0xFFFF):
        yield _refused_header(f"PARTIAL with flags 0x{bits:04x}", flags, flags=bits)
    for number, kind in enumerate(KINDS, 1):
        if kind not in ("PARTIAL", "REDUCTION"):
            yield _refused_header(f"{kind} with FOLDED", flags, kind=number, flags=FOLDED)
    yield _refused_header(
        "wrong version and kind", "protocol.version", "OrderOfChecks", version=2, kind=0
    )
    yield _refused_header("wrong kind and flags", malformed, "OrderOfChecks", kind=0, flags=2)
    yield _refused_header(
        "wrong flags and sizes", flags, "OrderOfChecks", flags=2, metadata_bytes=2**32 - 1
    )


def _refused_header(
    comment: str, code: str, flag: str = "LooseHeader", **wrong: Any
) -> dict[str, Any]:
    whole = frame("PARTIAL", TENSOR, FLOATS, **wrong)
    return _stream(comment, [flag], [], code, whole[:36], whole[36:])


def _sizes() -> Iterator[dict[str, Any]]:
    for name, limit in (("metadata_bytes", 65_536), ("payload_bytes", 16_777_216)):
        for size in (limit + 1, 2**31, 2**32 - 1):
            head = _announcing(**{name: size})
            comment = f"{name} = {size}, and nothing more arrives"
            yield _stream(comment, ["HostileLength"], [], "protocol.size", head)
        head = _announcing(**{name: limit})
        comment = f"{name} = {limit} is allowed, but the stream ends"
        yield _stream(comment, ["Boundary"], [], "protocol.truncated", head)
    head = _announcing(metadata_bytes=2**32 - 1, payload_bytes=2**32 - 1)
    yield _stream("both sizes at their largest", ["HostileLength"], [], "protocol.size", head)
    for kind in KINDS:
        if kind not in TENSOR_KINDS:
            whole = frame(kind, b"{}", b"\0")
            comment = f"{kind} announces a payload of one byte"
            yield _stream(comment, ["LooseHeader"], [], "protocol.size", whole[:36], whole[36:])


def _announcing(**sizes: Any) -> bytes:
    """The header alone of a PARTIAL that announces these sizes."""
    return frame("PARTIAL", **sizes)[:36]


def _checksums() -> Iterator[dict[str, Any]]:
    code = "protocol.checksum"
    sound = zlib.crc32(TENSOR + FLOATS)
    for at in (36, 36 + len(TENSOR) - 1, 36 + len(TENSOR), len(PARTIAL) - 1):
        flipped = bytearray(PARTIAL)
        flipped[at] ^= 1
        yield _stream(
            f"one bit of byte {at} flipped", ["ChecksumCoverage"], [], code, bytes(flipped)
        )
    wrong = {
        "0": 0,
        "off by one bit": sound ^ 1,
        "in the other byte order": int.from_bytes(sound.to_bytes(4, "big"), "little"),
        "of the payload before the metadata": zlib.crc32(FLOATS + TENSOR),
        "of the metadata alone": zlib.crc32(TENSOR),
        "of the payload alone": zlib.crc32(FLOATS),
        "of the header too": zlib.crc32(PARTIAL[:32] + TENSOR + FLOATS),
        "an Adler-32": zlib.adler32(TENSOR + FLOATS),
    }
    for what, checksum in wrong.items():
        whole = frame("PARTIAL", TENSOR, FLOATS, checksum=checksum)
        yield _stream(f"the checksum is {what}", ["ChecksumCoverage"], [], code, whole)
    both = frame("FENCE", b"{ }", checksum=7)
    yield _stream("wrong checksum over wrong JSON", ["OrderOfChecks"], [], code, both)


def _forms() -> Iterator[dict[str, Any]]:
    malformed, other = "protocol.malformed", "protocol.not_canonical"
    cases = (
        ("no metadata", b"", malformed),
        ("metadata is not JSON", b"rank=0", malformed),
        ("metadata is an array", b"[]", malformed),
        ("metadata holds a float", b'{"rank":0.0}', malformed),
        ("metadata is not ASCII", '{"tensor":"\u00e9"}'.encode(), malformed),
        ("metadata has a space", b'{"rank": 0}', other),
        ("metadata has unsorted keys", b'{"rank":0,"dtype":"<f4"}', other),
        ("metadata repeats a key", b'{"rank":0,"rank":0}', other),
        ("metadata ends with a line feed", b"{}\n", other),
    )
    for comment, metadata, code in cases:
        yield _stream(comment, ["LooseCanonical"], [], code, frame("FENCE", metadata))
    moved = frame(
        "PARTIAL",
        TENSOR,
        FLOATS,
        metadata_bytes=len(TENSOR) - 1,
        payload_bytes=len(FLOATS) + 1,
    )
    comment = "the same bytes, but the last of the metadata is announced as payload"
    yield _stream(comment, ["ChecksumCoverage"], [], malformed, moved)


def _streams() -> Iterator[dict[str, Any]]:
    bad = frame("FENCE", b"{}", checksum=1)
    code = "protocol.checksum"
    yield _stream("two good, one bad", ["AfterFirstFrame"], [HELLO, PARTIAL], code, bad)
    yield _stream("one bad, one good", ["Resync"], [], code, bad, FENCE)
    yield _stream(
        "a stray byte between frames", ["Resync"], [PARTIAL], "protocol.magic", b"\0", FENCE
    )
