"""How the bytes of a stream are cut on their way: the transport's freedom, made a parameter.

Whatever the cut, a conversation must go the same way (docs/spec/frame.md F10).
"""

from __future__ import annotations

import random
from collections.abc import Callable

# From how many bytes are waiting to how many the next read gets.
Delivery = Callable[[int], int]


def whole(waiting: int) -> int:
    """Everything that is there."""
    return waiting


def byte_by_byte(waiting: int) -> int:
    """One byte at a time."""
    return min(1, waiting)


def seeded_cuts(seed: int) -> Delivery:
    """Pieces of 1 to 64 bytes, the same for the same seed."""
    source = random.Random(seed)

    def cut(waiting: int) -> int:
        return min(waiting, source.randint(1, 64))

    return cut
