"""S13: records written and read back, and hostile tapes refused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import EvidenceError, MisuseError
from testdata.vectors.reading import vectors
from wire.frame import Side
from wire.tape import RAW_BYTES_MAX, TAPE_MAGIC, TapeRecord, read_tape, write_tape

RECORD = TapeRecord(Side.WORKER, 258, b"raw")


@pytest.mark.parametrize("vector", vectors("ledger.json"), ids=lambda vector: str(vector["id"]))
def test_vector(vector: dict[str, Any]) -> None:
    tape = bytes.fromhex(vector["tape"])
    records = read_tape(tape)
    assert write_tape(records) == tape
    assert len(records) == len(vector["ledger"])


def test_layout() -> None:
    assert write_tape([]) == b"RKPTAPE1"
    assert write_tape([RECORD]) == b"RKPTAPE1" + b"\x01\x01\x02\x00\x00\x00\x03raw"
    sent = TapeRecord(Side.COORDINATOR, 0, b"")
    assert write_tape([sent]) == b"RKPTAPE1" + bytes(7)


GOOD = write_tape([RECORD, RECORD])


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RKPTAPE",
        b"RKPTAPE2",
        GOOD[:-1],
        GOOD[: len(TAPE_MAGIC) + 3],
        GOOD + b"\0",
        TAPE_MAGIC + b"\x02" + GOOD[9:],
        TAPE_MAGIC + b"\x00\x00\x00\xff\xff\xff\xff" + b"x",
    ],
)
def test_what_is_no_tape(data: bytes) -> None:
    with pytest.raises(EvidenceError) as refused:
        read_tape(data)
    assert refused.value.code == "evidence.tape"


def test_a_record_longer_than_any_frame_is_refused() -> None:
    size = RAW_BYTES_MAX + 1
    data = TAPE_MAGIC + b"\x00\x00\x00" + size.to_bytes(4, "big") + bytes(size)
    tracemalloc.start()
    with pytest.raises(EvidenceError):
        read_tape(data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000


@pytest.mark.parametrize("rank", [-1, 65_536])
def test_a_rank_beyond_16_bits_is_a_misuse(rank: int) -> None:
    with pytest.raises(MisuseError):
        write_tape([RECORD._replace(rank=rank)])


def test_more_than_a_frame_is_a_misuse() -> None:
    with pytest.raises(MisuseError):
        write_tape([RECORD._replace(raw=bytes(RAW_BYTES_MAX + 1))])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_a_tape_or_a_finding(data: bytes) -> None:
    for tape in (data, TAPE_MAGIC + data, GOOD + data):
        try:
            records = read_tape(tape)
        except EvidenceError:
            continue
        assert write_tape(records) == tape
