from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import ConfigError
from program.safetensors import (
    HEADER_BYTES_MAX,
    ITEM_BYTES,
    TensorEntry,
    header_length,
    parse_header,
    read_header,
)


def entry(dtype: object, shape: object, *offsets: object) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def file_bytes(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def read(path: Path, content: bytes) -> tuple[TensorEntry, ...]:
    path.write_bytes(content)
    return read_header(path)


def code_of(path: Path, content: bytes) -> str:
    with pytest.raises(ConfigError) as caught:
        read(path, content)
    return caught.value.code


def test_entries_come_in_the_order_of_their_bytes(tmp_path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "b": entry("F32", [2], 4, 12),
        "a": entry("BF16", [1, 2], 0, 4),
        "scalar": entry("F32", [], 12, 16),
        "empty": entry("F32", [0, 7], 12, 12),
    }
    content = file_bytes(header, bytes(16))
    start = len(content) - 16
    assert read(tmp_path / "f", content) == (
        TensorEntry("a", "BF16", (1, 2), start, start + 4),
        TensorEntry("b", "F32", (2,), start + 4, start + 12),
        TensorEntry("empty", "F32", (0, 7), start + 12, start + 12),
        TensorEntry("scalar", "F32", (), start + 12, start + 16),
    )


def test_a_header_padded_with_spaces_is_read(tmp_path: Path) -> None:
    text = json.dumps({"a": entry("U8", [3], 0, 3)}).encode() + b"   "
    assert [e.name for e in read(tmp_path / "f", file_bytes(text, b"abc"))] == ["a"]


GOOD = {"a": entry("F32", [2], 0, 8)}
BROKEN: list[tuple[str, bytes]] = [
    ("empty file", b""),
    ("seven bytes", bytes(7)),
    ("length of 8 EiB", file_bytes(GOOD, bytes(8), 1 << 63)),
    ("length beyond the limit", file_bytes(GOOD, bytes(8), HEADER_BYTES_MAX + 1)),
    ("length beyond the file", file_bytes(GOOD, bytes(8), 10_000)),
    ("no header", file_bytes(b"")),
    ("not JSON", file_bytes(b"{]")),
    ("a list", file_bytes([])),
    ("duplicate names", file_bytes(b'{"a":%b,"a":%b}' % ((json.dumps(GOOD["a"]).encode(),) * 2))),
    ("metadata is a list", file_bytes({"__metadata__": []})),
    ("metadata of numbers", file_bytes({"__metadata__": {"a": 1}})),
    ("entry is a list", file_bytes({"a": []})),
    ("entry without dtype", file_bytes({"a": {"shape": [], "data_offsets": [0, 4]}})),
    ("entry with more keys", file_bytes({"a": {**GOOD["a"], "x": 1}}, bytes(8))),
    ("unknown dtype", file_bytes({"a": entry("F31", [2], 0, 8)}, bytes(8))),
    ("dtype is a number", file_bytes({"a": entry(1, [2], 0, 8)}, bytes(8))),
    ("shape is a number", file_bytes({"a": entry("F32", 2, 0, 8)}, bytes(8))),
    ("negative size", file_bytes({"a": entry("F32", [-2], 0, 8)}, bytes(8))),
    ("size true", file_bytes({"a": entry("F32", [True, 2], 0, 8)}, bytes(8))),
    ("size 2.0", file_bytes({"a": entry("F32", [2.0], 0, 8)}, bytes(8))),
    ("huge sizes", file_bytes({"a": entry("F32", [1 << 62, 1 << 62], 0, 8)}, bytes(8))),
    ("sizes that overflow to 8", file_bytes({"a": entry("U8", [1 << 32, 1 << 32], 0, 0)})),
    ("nine axes", file_bytes({"a": entry("U8", [1] * 9, 0, 1)}, bytes(1))),
    ("one offset", file_bytes({"a": entry("F32", [2], 0)}, bytes(8))),
    ("reversed offsets", file_bytes({"a": entry("F32", [2], 8, 0)}, bytes(8))),
    ("negative offset", file_bytes({"a": entry("F32", [2], -8, 0)}, bytes(8))),
    ("offset text", file_bytes({"a": entry("F32", [2], "0", "8")}, bytes(8))),
    ("fewer bytes than the shape", file_bytes({"a": entry("F32", [2], 0, 4)}, bytes(4))),
    ("more bytes than the shape", file_bytes({"a": entry("F32", [2], 0, 12)}, bytes(12))),
    ("out of the file", file_bytes({"a": entry("F32", [2], 0, 8)}, bytes(7))),
    ("far out of the file", file_bytes({"a": entry("F32", [2], 1 << 50, (1 << 50) + 8)}, bytes(8))),
    ("bytes of nobody at the end", file_bytes(GOOD, bytes(9))),
    ("only bytes of nobody", file_bytes({}, bytes(1))),
    ("gap at the start", file_bytes({"a": entry("F32", [1], 4, 8)}, bytes(8))),
    (
        "gap between",
        file_bytes({"a": entry("F32", [1], 0, 4), "b": entry("F32", [1], 8, 12)}, bytes(12)),
    ),
    (
        "overlap",
        file_bytes({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}, bytes(12)),
    ),
    (
        "the same bytes twice",
        file_bytes({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 0, 8)}, bytes(8)),
    ),
    (
        "misaligned",
        file_bytes({"a": entry("U8", [2], 0, 2), "b": entry("F32", [1], 2, 6)}, bytes(6)),
    ),
    ("empty name", file_bytes({"": entry("U8", [1], 0, 1)}, bytes(1))),
    ("endless name", file_bytes({"x" * 600: entry("U8", [1], 0, 1)}, bytes(1))),
    ("70,000 tensors", file_bytes({f"{i}": entry("U8", [0], 0, 0) for i in range(70_000)})),
]


@pytest.mark.parametrize("content", [content for _, content in BROKEN], ids=[n for n, _ in BROKEN])
def test_a_broken_header_is_refused(tmp_path: Path, content: bytes) -> None:
    assert code_of(tmp_path / "f", content) == "checkpoint.header"


def test_a_million_tensors_are_refused_by_the_length_of_their_header() -> None:
    with pytest.raises(ConfigError) as caught:
        header_length(struct.pack("<Q", 55_000_000), 60_000_000, "f")
    assert caught.value.code == "checkpoint.header"


def test_a_missing_file_and_a_folder_are_unreadable(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigError) as caught:
            read_header(path)
        assert caught.value.code == "checkpoint.unreadable"


@given(cut=st.integers(0, 200))
def test_a_truncated_file_is_refused_wherever_it_ends(cut: int) -> None:
    whole = file_bytes(GOOD, bytes(8))
    size = min(cut, len(whole) - 1)

    def read_truncated() -> None:
        length = header_length(whole[:8][:size], size, "f")
        parse_header(whole[8 : 8 + length], size, "f")

    with pytest.raises(ConfigError) as caught:
        read_truncated()
    assert caught.value.code == "checkpoint.header"


@given(
    tensors=st.lists(
        st.tuples(st.sampled_from(sorted(ITEM_BYTES)), st.lists(st.integers(0, 5), max_size=3)),
        max_size=6,
    )
)
def test_what_a_writer_lays_out_is_read_back(tensors: list[tuple[str, list[int]]]) -> None:
    header: dict[str, object] = {}
    end = 0
    for index, (dtype, shape) in enumerate(
        sorted(tensors, key=lambda tensor: -ITEM_BYTES[tensor[0]])
    ):
        size = ITEM_BYTES[dtype]
        for extent in shape:
            size *= extent
        header[f"t{index}"] = entry(dtype, shape, end, end + size)
        end += size
    text = json.dumps(header).encode()
    entries = parse_header(text, 8 + len(text) + end, "f")
    assert {e.name: (e.dtype, list(e.shape)) for e in entries} == {
        name: (fields["dtype"], fields["shape"])
        for name, fields in header.items()
        if isinstance(fields, dict)
    }
    assert sum(e.bytes_count for e in entries) == end
