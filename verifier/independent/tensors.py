"""Tensors regenerated from a seed (tensors.md), and their cuts over ranks."""

from __future__ import annotations

import struct
from functools import lru_cache

import block

_MASK = 2**64 - 1
_STRIDE = 0x9E3779B97F4A7C15
WEIGHT_EXPONENT, OPERAND_EXPONENT = -25, -27

Values = tuple[float, ...]


def name_hash(name: str) -> int:
    """T1: 64-bit FNV-1a of the ASCII bytes."""
    value = 0xCBF29CE484222325
    for byte in name.encode("ascii"):
        value = (value ^ byte) * 0x100000001B3 & _MASK
    return value


def mix(value: int) -> int:
    """T2: the output function of SplitMix64."""
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _MASK
    return value ^ value >> 31


def tensor_key(seed: int, name: str) -> int:
    """T3."""
    return mix(mix(seed) ^ name_hash(name))


def integers(seed: int, name: str, count: int) -> list[int]:
    """T4: the first elements of a tensor as integers of 24 bits."""
    key = tensor_key(seed, name)
    return [(mix(key + (index + 1) * _STRIDE & _MASK) >> 40) - 2**23 for index in range(count)]


def values(seed: int, name: str, count: int, exponent: int) -> Values:
    """T5: the first elements of a tensor; each is exact in binary32."""
    scale = 2.0**exponent
    return tuple(integer * scale for integer in integers(seed, name, count))


@lru_cache(maxsize=64)
def whole_weight(seed: int, name: str) -> Values:
    """A weight before it is cut, in C order."""
    weight = next(each for each in block.WEIGHTS if each.name == name)
    return values(seed, name, weight.rows * weight.columns, WEIGHT_EXPONENT)


@lru_cache(maxsize=512)
def local_values(seed: int, ranks: int, rank: int, name: str) -> Values:
    """A rank's slice of a weight, in C order (program.md P2)."""
    weight = next(each for each in block.WEIGHTS if each.name == name)
    whole = whole_weight(seed, name)
    rows, columns = weight.local_shape(ranks)
    if weight.axis == 0:
        return whole[rank * rows * columns : (rank + 1) * rows * columns]
    cut: list[float] = []
    for row in range(rows):
        start = row * weight.columns + rank * columns
        cut.extend(whole[start : start + columns])
    return tuple(cut)


@lru_cache(maxsize=64)
def operand_values(seed: int, tokens: int) -> Values:
    """`x`, `[tokens, hidden]`."""
    return values(seed, "x", tokens * block.HIDDEN, OPERAND_EXPONENT)


@lru_cache(maxsize=512)
def local_weight(seed: int, ranks: int, rank: int, name: str) -> bytes:
    """The payload of a WEIGHT frame."""
    return to_bytes(local_values(seed, ranks, rank, name))


@lru_cache(maxsize=64)
def operand(seed: int, tokens: int) -> bytes:
    """The payload of an INPUT frame."""
    return to_bytes(operand_values(seed, tokens))


def to_bytes(numbers: Values) -> bytes:
    """Little-endian binary32 (frame.md F6); numbers that are not exact in it are rounded."""
    return struct.pack(f"<{len(numbers)}f", *numbers)


def from_bytes(data: bytes) -> Values:
    return struct.unpack(f"<{len(data) // 4}f", data)
