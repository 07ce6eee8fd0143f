"""Random numbers without state: one uniform per (seed, position).

A token's uniform depends on the request's seed and the token's position and on nothing else, so
batching, chunking, neighbours and the number of ranks can't change a sample. Philox is written out
in integers: any language reproduces it.

Source: Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011),
philox4x32 with 10 rounds.
"""

from __future__ import annotations

from typing import Final

Words = tuple[int, int, int, int]

_WORD: Final = 0xFFFF_FFFF
_MULTIPLIERS: Final = (0xD251_1F53, 0xCD9E_8D57)
_KEY_STEPS: Final = (0x9E37_79B9, 0xBB67_AE85)
_ROUNDS: Final = 10


def philox4x32(counter: Words, key: tuple[int, int]) -> Words:
    """Ten rounds over four 32-bit counter words under two 32-bit key words."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(_ROUNDS):
        low = _MULTIPLIERS[0] * c0
        high = _MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (high >> 32) ^ c1 ^ k0,
            high & _WORD,
            (low >> 32) ^ c3 ^ k1,
            low & _WORD,
        )
        k0 = (k0 + _KEY_STEPS[0]) & _WORD
        k1 = (k1 + _KEY_STEPS[1]) & _WORD
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """A float64 in [0, 1), a multiple of 2^-53. seed and position: below 2^64.

    The key is the seed (low word first), the counter is (position low, position high, 0, 0); the
    result takes 32 bits of the first word above 21 bits of the second.
    """
    counter = (position & _WORD, position >> 32, 0, 0)
    first, second, _, _ = philox4x32(counter, (seed & _WORD, seed >> 32))
    return float((first << 21) | (second >> 11)) * 2.0**-53
