"""The header of a safetensors file, read strictly: which tensor lies at which bytes.

Format (huggingface/safetensors): u64 little-endian N, N bytes of JSON, data. The JSON maps a name
to {dtype, shape, data_offsets: [begin, end]} with offsets into the data, plus an optional
`__metadata__` of strings. Everything is checked before anything is mapped or set aside: the
tensors must cover the data exactly, in any order, without gap or overlap (docs/spec/checkpoint.md,
clauses T). This file must not know which tensors a model needs.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final, NoReturn

from errors import ConfigError
from program.strict_json import parse_object, shown

# 738 tensors of the 4B model need 90,240 bytes; the format's own reader stops at 100 MB.
HEADER_BYTES_MAX: Final = 16 << 20
TENSORS_MAX: Final = 1 << 16
_DIMENSIONS_MAX: Final = 8
_EXTENT_MAX: Final = (1 << 53) - 1
_NAME_MAX: Final = 512
_LENGTH: Final = struct.Struct("<Q")
_ENTRY_KEYS: Final = {"dtype", "shape", "data_offsets"}
# Element sizes of the format's types. Only those in program/checkpoint.py can be loaded; the others
# may stand in tensors that are skipped.
ITEM_BYTES: Final = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
    "I32": 4,
    "U32": 4,
    "F32": 4,
    "I64": 8,
    "U64": 8,
    "F64": 8,
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a file. start, stop: byte range in the file; dtype: the format's name of it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def bytes_count(self) -> int:
        return self.stop - self.start


def read_header(path: Path) -> tuple[TensorEntry, ...]:
    """The tensors of the file, in the order of their bytes.

    Raises ConfigError: checkpoint.unreadable, or checkpoint.header when the file breaks the format.
    """
    if not path.is_file():  # also keeps a pipe or a device from being opened
        raise ConfigError.single(
            path.name, path, "must be a file of the checkpoint", "checkpoint.unreadable"
        )
    try:
        with path.open("rb") as stream:
            file_bytes = stream.seek(0, 2)
            stream.seek(0)
            prefix = stream.read(_LENGTH.size)
            length = header_length(prefix, file_bytes, path.name)
            header = stream.read(length)
    except OSError as error:
        raise ConfigError.single(
            path.name, path, f"must be readable: {error.strerror}", "checkpoint.unreadable"
        ) from error
    return parse_header(header, file_bytes, path.name)


def header_length(prefix: bytes, file_bytes: int, source: str) -> int:
    """N, checked against the limit and the file's size before memory for it is set aside."""
    if len(prefix) < _LENGTH.size:
        _refuse(source, f"{file_bytes} bytes", "must hold at least the 8 bytes of a header length")
    length = int(_LENGTH.unpack(prefix)[0])
    if length > HEADER_BYTES_MAX:
        _refuse(source, length, f"must have a header of at most {HEADER_BYTES_MAX} bytes")
    if length > file_bytes - _LENGTH.size:
        _refuse(source, length, f"has a header longer than the file of {file_bytes} bytes")
    return length


def parse_header(header: bytes, file_bytes: int, source: str) -> tuple[TensorEntry, ...]:
    """The entries that the header's bytes describe, for a file of `file_bytes`."""
    if len(header) > file_bytes - _LENGTH.size:
        _refuse(source, f"{file_bytes} bytes", "must hold its whole header")
    table = parse_object(header, source, bytes_max=HEADER_BYTES_MAX, code="checkpoint.header")
    _check_metadata(table.pop("__metadata__", None), source)
    if len(table) > TENSORS_MAX:
        _refuse(source, f"{len(table)} tensors", f"must hold at most {TENSORS_MAX} tensors")
    data_start = _LENGTH.size + len(header)
    data_bytes = file_bytes - data_start
    entries = [_entry(name, fields, data_start, source) for name, fields in table.items()]
    entries.sort(key=lambda entry: (entry.start, entry.stop))
    _check_cover(entries, data_start, data_bytes, source)
    return tuple(entries)


def _refuse(field: str, value: object, rule: str) -> NoReturn:
    raise ConfigError.single(field, shown(value), rule, "checkpoint.header")


def _check_metadata(metadata: object, source: str) -> None:
    if metadata is None:
        return
    if not isinstance(metadata, dict) or any(not isinstance(v, str) for v in metadata.values()):
        _refuse(f"{source}: __metadata__", metadata, "must map names to strings")


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= _EXTENT_MAX


def _entry(name: str, fields: object, data_start: int, source: str) -> TensorEntry:
    where = f"{source}: {shown(name)}"
    if not 0 < len(name) <= _NAME_MAX:
        _refuse(where, f"{len(name)} characters", f"must be named with 1 to {_NAME_MAX} characters")
    if not isinstance(fields, dict) or set(fields) != _ENTRY_KEYS:
        _refuse(where, fields, "must have exactly dtype, shape and data_offsets")
    dtype, shape, offsets = (fields[key] for key in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        _refuse(f"{where}.dtype", dtype, f"must be one of {', '.join(ITEM_BYTES)}")
    if not isinstance(shape, list) or len(shape) > _DIMENSIONS_MAX or not all(map(_is_size, shape)):
        _refuse(f"{where}.shape", shape, f"must be up to {_DIMENSIONS_MAX} sizes")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        _refuse(f"{where}.data_offsets", offsets, "must be two byte positions")
    begin, end = offsets
    item = ITEM_BYTES[dtype]
    if begin > end or end - begin != prod(shape) * item:
        rule = f"must span the {prod(shape) * item} bytes of shape {shape} in {dtype}"
        _refuse(f"{where}.data_offsets", offsets, rule)
    if begin % item:
        _refuse(f"{where}.data_offsets", offsets, f"must start at a multiple of {item} bytes")
    return TensorEntry(name, dtype, tuple(shape), data_start + begin, data_start + end)


def _check_cover(entries: list[TensorEntry], data_start: int, data_bytes: int, source: str) -> None:
    """No gap, no overlap, nothing outside the file, no byte that belongs to no tensor."""
    edges = [data_start, *(entry.stop for entry in entries)]
    for entry, end in zip(entries, edges, strict=False):
        if entry.start != end:
            what = "overlaps another tensor" if entry.start < end else "leaves a gap before it"
            _refuse(f"{source}: {shown(entry.name)}", f"byte {entry.start - data_start}", what)
    last = edges[-1] - data_start
    if last != data_bytes:
        what = "is truncated: its tensors need" if last > data_bytes else "holds more than"
        _refuse(source, f"{data_bytes} data bytes", f"{what} {last} bytes")
