"""The reader's contract in one sentence: any bytes, cut anywhere, give frames and then one
documented ProtocolError, never another exception, in memory bounded by the limits."""

from __future__ import annotations

import random
import tracemalloc
import zlib
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import MisuseError, ProtocolError
from testdata.vectors.reading import vectors
from wire.frame import Frame, Kind, encode
from wire.frame_reader import FrameReader
from wire.limits import HEADER, HEADER_BYTES, MAGIC, READ_BYTES

VECTORS = vectors("frames.json")
CUT_SEEDS = range(5)


class Outcome(NamedTuple):
    frames: list[Frame]
    code: str
    raw: bytes


def read(pieces: Iterable[bytes]) -> Outcome:
    """Feed the pieces, taking frames as they complete, then end the stream."""
    reader = FrameReader()
    frames: list[Frame] = []
    try:
        for piece in pieces:
            reader.receive_data(piece)
            while (frame := reader.next_frame()) is not None:
                frames.append(frame)
        reader.receive_eof()
        while (frame := reader.next_frame()) is not None:
            frames.append(frame)
    except ProtocolError as error:
        return Outcome(frames, error.code, reader.raw())
    raise AssertionError("a stream that ended gave no error")


def cut(stream: bytes, seed: int) -> list[bytes]:
    """The stream in pieces of seeded sizes."""
    chance = random.Random(seed)
    pieces = []
    while stream:
        size = chance.choice((1, 2, 35, 36, 37, chance.randrange(1, 200)))
        pieces.append(stream[:size])
        stream = stream[size:]
    return pieces


def agreed(vector: dict[str, Any]) -> tuple[list[tuple[Any, ...]], str, int]:
    """What a vector demands; a valid stream is closed at a frame boundary (F8)."""
    frames = [
        (
            frame["kind"],
            frame["flags"],
            frame["epoch"],
            frame["sequence"],
            frame["checksum"],
            frame["metadata"],
            frame["payload"],
        )
        for frame in vector["frames"]
    ]
    return frames, vector["code"] or "protocol.closed", vector["refused_bytes"]


def told(outcome: Outcome) -> tuple[list[tuple[Any, ...]], str, int]:
    """An outcome in the form of `agreed`."""
    frames = [
        (
            frame.kind.name,
            frame.header.flags,
            frame.header.epoch,
            frame.header.sequence,
            frame.header.checksum,
            frame.metadata.decode("ascii"),
            bytes(frame.payload).hex(),
        )
        for frame in outcome.frames
    ]
    return frames, outcome.code, len(outcome.raw)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["id"]))
class TestVectors:
    """F10: the same outcome for every way to cut the stream."""

    def test_whole(self, vector: dict[str, Any]) -> None:
        outcome = read([bytes.fromhex(vector["stream"])])
        assert told(outcome) == agreed(vector)

    def test_refused_bytes_follow_the_good_frames(self, vector: dict[str, Any]) -> None:
        stream = bytes.fromhex(vector["stream"])
        outcome = read([stream])
        good = sum(36 + len(frame.metadata) + len(frame.payload) for frame in outcome.frames)
        assert outcome.raw == stream[good : good + vector["refused_bytes"]]

    def test_byte_by_byte(self, vector: dict[str, Any]) -> None:
        stream = bytes.fromhex(vector["stream"])
        assert told(read(stream[at : at + 1] for at in range(len(stream)))) == agreed(vector)

    @pytest.mark.parametrize("seed", CUT_SEEDS)
    def test_cut(self, vector: dict[str, Any], seed: int) -> None:
        assert told(read(cut(bytes.fromhex(vector["stream"]), seed))) == agreed(vector)


def frame_bytes(kind: Kind = Kind.INPUT, metadata: bytes = b"{}", payload: bytes = b"") -> bytes:
    _, buffers = encode(kind, epoch=1, sequence=0, metadata=metadata, payload=payload)
    return b"".join(buffers)


def test_a_frame_is_due_at_its_last_byte_and_not_before() -> None:
    whole = frame_bytes(payload=b"abcd")
    reader = FrameReader()
    for at in range(len(whole) - 1):
        reader.receive_data(whole[at : at + 1])
        assert reader.next_frame() is None
    reader.receive_data(whole[-1:])
    assert reader.next_frame() is not None


def test_what_follows_a_frame_stays_for_the_next() -> None:
    reader = FrameReader()
    reader.receive_data(frame_bytes(payload=b"abcd") + frame_bytes(payload=b"ef") + MAGIC)
    first, second = reader.next_frame(), reader.next_frame()
    assert first is not None
    assert second is not None
    assert (bytes(first.payload), bytes(second.payload)) == (b"abcd", b"ef")
    assert reader.next_frame() is None
    assert reader.raw() == MAGIC


def test_a_frame_that_arrived_before_the_end_still_counts() -> None:
    reader = FrameReader()
    reader.receive_data(frame_bytes())
    reader.receive_eof()
    assert not reader.at_clean_end
    assert reader.next_frame() is not None
    assert reader.at_clean_end


LARGE = bytes(range(256)) * 1024
LARGE_FRAME = frame_bytes(Kind.PARTIAL, b'{"rank":0}', LARGE)


@pytest.mark.parametrize("first", [1, 36, 40, 46, 47, 65_536, len(LARGE_FRAME) - 1])
def test_a_large_payload_is_read_in_place(first: int) -> None:
    reader = FrameReader()
    reader.receive_data(LARGE_FRAME[:first])
    assert reader.next_frame() is None
    sent = first
    while (frame := reader.next_frame()) is None:
        space = reader.space()
        if space is None:
            reader.receive_data(LARGE_FRAME[sent : sent + 5])
            sent += 5
            continue
        count = min(len(space), 50_000)
        space[:count] = LARGE_FRAME[sent : sent + count]
        reader.received(count)
        sent += count
    assert sent == len(LARGE_FRAME)
    assert bytes(frame.payload) == LARGE
    assert isinstance(frame.payload, memoryview)
    assert reader.space() is None


@pytest.mark.parametrize("size", [READ_BYTES - 46, READ_BYTES, 100_000])
def test_a_large_payload_in_pieces_with_a_tail(size: int) -> None:
    stream = LARGE_FRAME + frame_bytes(payload=b"tail") + LARGE_FRAME
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    outcome = read(pieces)
    assert [bytes(frame.payload) for frame in outcome.frames] == [LARGE, b"tail", LARGE]
    assert outcome.code == "protocol.closed"


def test_a_large_payload_is_read_only_and_checked() -> None:
    reader = FrameReader()
    reader.receive_data(LARGE_FRAME[:100])
    reader.next_frame()
    reader.receive_data(LARGE_FRAME[100:])
    frame = reader.next_frame()
    assert frame is not None
    assert isinstance(frame.payload, memoryview)
    assert frame.payload.readonly
    broken = LARGE_FRAME[:-1] + b"\x01"
    outcome = read([broken[:100], broken[100:] + b"beyond"])
    assert (outcome.code, outcome.raw) == ("protocol.checksum", broken)


def test_a_large_payload_that_stops_is_truncated() -> None:
    outcome = read([LARGE_FRAME[:100], LARGE_FRAME[100:-1]])
    assert (outcome.code, outcome.raw) == ("protocol.truncated", LARGE_FRAME[:-1])


def test_received_takes_no_more_than_there_is_space() -> None:
    reader = FrameReader()
    with pytest.raises(MisuseError):
        reader.received(1)
    reader.receive_data(LARGE_FRAME[:100])
    reader.next_frame()
    space = reader.space()
    assert space is not None
    with pytest.raises(MisuseError):
        reader.received(len(space) + 1)


def test_a_dead_reader_stays_dead_and_keeps_nothing() -> None:
    reader = FrameReader()
    reader.receive_data(b"X")
    with pytest.raises(ProtocolError) as first:
        reader.next_frame()
    tracemalloc.start()
    for _ in range(100):
        reader.receive_data(bytes(100_000))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 100_000
    reader.receive_data(frame_bytes())
    with pytest.raises(ProtocolError) as second:
        reader.next_frame()
    assert second.value is first.value
    assert reader.raw() == b"X"


@pytest.mark.parametrize(
    "sizes", [(2**32 - 1, 0), (0, 2**32 - 1), (2**32 - 1, 2**32 - 1), (65_537, 0), (0, 16_777_217)]
)
def test_a_hostile_length_is_refused_before_memory_is_set_aside(sizes: tuple[int, int]) -> None:
    head = HEADER.pack(MAGIC, 1, Kind.PARTIAL, 0, 1, 0, *sizes, 0)
    tracemalloc.start()
    reader = FrameReader()
    reader.receive_data(head)
    with pytest.raises(ProtocolError) as refused:
        reader.next_frame()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert refused.value.code == "protocol.size"
    assert peak < 20_000


def test_a_large_but_legal_length_sets_nothing_aside_before_its_metadata_came() -> None:
    head = HEADER.pack(MAGIC, 1, Kind.PARTIAL, 0, 1, 0, 2, 16_777_216, 0)
    tracemalloc.start()
    reader = FrameReader()
    reader.receive_data(head)
    assert reader.next_frame() is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000


def test_equal_bytes_need_no_parsing_and_others_are_parsed() -> None:
    odd = b'{"not": canonical'
    reader = FrameReader()
    reader.receive_data(frame_bytes(metadata=odd))
    assert reader.next_frame(odd) is not None
    reader.receive_data(frame_bytes(metadata=odd))
    with pytest.raises(ProtocolError) as refused:
        reader.next_frame(b"{}")
    assert refused.value.code == "protocol.malformed"


def test_the_header_of_a_refused_frame_is_known_where_there_was_one() -> None:
    reader = FrameReader()
    reader.receive_data(HEADER.pack(MAGIC, 1, 7, 8, 1, 0, 2, 0, 0))
    with pytest.raises(ProtocolError):
        reader.next_frame()
    assert reader.header is not None
    assert reader.header.flags == 8


header_fields = st.tuples(
    st.sampled_from([MAGIC, b"RKPE", b"\0\0\0\0"]),
    st.sampled_from([1, 1, 1, 0, 2, 255]),
    st.integers(0, 12),
    st.sampled_from([0, 0, 0, 1, 2, 0xFFFF]),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.one_of(st.integers(0, 40), st.integers(0, 2**32 - 1)),
    st.one_of(st.integers(0, 40), st.integers(0, 2**32 - 1)),
    st.integers(0, 2**32 - 1),
)
crafted = st.tuples(header_fields, st.binary(max_size=90)).map(
    lambda drawn: HEADER.pack(*drawn[0]) + drawn[1]
)
honest = st.tuples(
    st.sampled_from(Kind), st.binary(max_size=40), st.binary(max_size=40), st.booleans()
).map(
    lambda drawn: (
        HEADER.pack(
            MAGIC,
            1,
            drawn[0],
            0,
            1,
            0,
            len(drawn[1]),
            len(drawn[2]) * drawn[0].is_tensor,
            zlib.crc32(drawn[1] + drawn[2] * drawn[0].is_tensor) ^ drawn[3],
        )
        + drawn[1]
        + drawn[2] * drawn[0].is_tensor
    )
)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=80), crafted, honest), max_size=4).map(b"".join),
    st.integers(0, 2**16),
)
def test_any_bytes_give_frames_then_one_documented_error(stream: bytes, seed: int) -> None:
    whole = read([stream])
    assert whole.code.startswith("protocol.")
    assert read(cut(stream, seed)) == whole
    taken = sum(HEADER_BYTES + len(frame.metadata) + len(frame.payload) for frame in whole.frames)
    assert stream[taken : taken + len(whole.raw)] == whole.raw
