"""Frames and tapes against the shared vectors."""

from __future__ import annotations

import frames
import pytest
import vectors
from hypothesis import given
from hypothesis import strategies as st

FRAMES = vectors.by_id("frames")


@pytest.mark.parametrize("name", FRAMES)
def test_streams(name: str) -> None:
    vector = FRAMES[name]
    stream = bytes.fromhex(vector["stream"])
    for wanted in vector["frames"]:
        reading = frames.read_frame(stream)
        assert reading.error is None
        assert reading.header is not None
        assert reading.header.kind == wanted["kind"]
        assert reading.header.flags == wanted["flags"]
        assert reading.header.epoch == wanted["epoch"]
        assert reading.header.sequence == wanted["sequence"]
        assert reading.header.checksum == wanted["checksum"]
        assert reading.payload.hex() == wanted["payload"]
        end = frames.HEADER.size + len(wanted["metadata"])
        assert stream[frames.HEADER.size : end].decode("ascii") == wanted["metadata"]
        written = frames.write_frame(
            wanted["kind"],
            wanted["epoch"],
            wanted["sequence"],
            wanted["metadata"].encode("ascii"),
            bytes.fromhex(wanted["payload"]),
            wanted["flags"],
        )
        assert written == stream[: reading.consumed]
        stream = stream[reading.consumed :]
    if vector["code"] is None:
        assert stream == b""
    else:
        refused = frames.read_frame(stream)
        assert (refused.error, refused.consumed) == (vector["code"], vector["refused_bytes"])


@given(st.binary(max_size=80))
def test_any_bytes_read_as_a_frame_or_a_code(data: bytes) -> None:
    reading = frames.read_frame(data)
    assert reading.consumed <= len(data)
    assert (reading.error is None) == (reading.metadata is not None)


RECORD = frames.RECORD.pack(1, 3, 2) + b"ab"


def test_a_tape_is_its_records() -> None:
    tape = frames.TAPE_MAGIC + RECORD + frames.RECORD.pack(0, 0, 0)
    assert frames.read_tape(tape) == [
        frames.Record("receive", 3, b"ab"),
        frames.Record("send", 0, b""),
    ]


@pytest.mark.parametrize(
    "tape",
    [
        b"",
        b"RKPTAPE2",
        frames.TAPE_MAGIC + RECORD[:-1],
        frames.TAPE_MAGIC + RECORD[:3],
        frames.TAPE_MAGIC + frames.RECORD.pack(2, 0, 0),
        frames.TAPE_MAGIC + frames.RECORD.pack(0, 0, 2**32 - 1),
        frames.TAPE_MAGIC + frames.RECORD.pack(0, 0, 0) * (frames.MAX_RECORDS + 1),
    ],
    ids=["empty", "magic", "cut bytes", "cut head", "direction", "length", "too many"],
)
def test_what_is_no_tape(tape: bytes) -> None:
    with pytest.raises(frames.TapeError):
        frames.read_tape(tape)
