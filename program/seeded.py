"""Seeded tensors: a counter-based integer generator whose integers are exact float32 values.

Element i of a tensor is a function of (seed, tensor name, i) alone, so any part of any tensor can
be computed in any order and in any language with 64-bit integers. No operation here rounds: a
24-bit integer times a power of two is a float32. The law is docs/spec/tensors.md (clauses T). It
must not know which tensors a program has; that is program/block.py.

Sources: the mixing function is that of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014); the name's
hash is 64-bit FNV-1a (Fowler, Noll, Vo).
"""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from typing import Final

from errors import ConfigError

# Every seed must survive canonical JSON (docs/spec/metadata.md, M1).
SEED_MAX: Final = 2**53 - 1

_MASK: Final = 2**64 - 1
_GAMMA: Final = 0x9E3779B97F4A7C15
_MIX_1: Final = 0xBF58476D1CE4E5B9
_MIX_2: Final = 0x94D049BB133111EB
_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x00000100000001B3


def mix(z: int) -> int:
    """SplitMix64's bijection of 64-bit integers (T2)."""
    z = ((z ^ (z >> 30)) * _MIX_1) & _MASK
    z = ((z ^ (z >> 27)) * _MIX_2) & _MASK
    return z ^ (z >> 31)


def name_hash(name: str) -> int:
    """64-bit FNV-1a of the name's ASCII bytes (T1)."""
    value = _FNV_OFFSET
    for byte in name.encode("ascii"):
        value = ((value ^ byte) * _FNV_PRIME) & _MASK
    return value


def stream_key(seed: int, name: str) -> int:
    """Where the counter of one tensor starts (T3). Raises ConfigError for a seed out of range."""
    if not 0 <= seed <= SEED_MAX:
        raise ConfigError.single("seed", seed, f"must be at least 0 and at most {SEED_MAX}")
    return mix(mix(seed) ^ name_hash(name))


def integers(seed: int, name: str, count: int) -> list[int]:
    """Elements 0 to count - 1 as integers, each at least -2^23 and below 2^23 (T4)."""
    z = stream_key(seed, name)
    result = []
    for _ in range(count):
        z = (z + _GAMMA) & _MASK
        u = ((z ^ (z >> 30)) * _MIX_1) & _MASK
        u = ((u ^ (u >> 27)) * _MIX_2) & _MASK
        # The last step of `mix` leaves the top 31 bits as they are; 24 of them are taken.
        result.append((u >> 40) - 0x800000)
    return result


@lru_cache(maxsize=32)
def tensor_bytes(seed: int, name: str, count: int, exponent: int) -> bytes:
    """`count` float32 values integer * 2^exponent in C order, little-endian (T5).

    exponent: between -126 and 0, so that every value is zero or a normal float32.
    Raises ConfigError for a seed out of range.
    """
    scale = 2.0**exponent
    values = array("f", [scale * integer for integer in integers(seed, name, count)])
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()
