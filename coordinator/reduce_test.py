"""Each order is a fixed tree: told apart on values where float32 addition isn't associative."""

from __future__ import annotations

import struct

import pytest

from coordinator.reduce import reduce_partials
from errors import MisuseError

BIG, SMALL = float(2**24), 1.0


def payload(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def total(order: str, *values: float) -> float:
    summed = reduce_partials([payload(value) for value in values], order, "<f4")
    (result,) = struct.unpack("<f", summed)
    return float(result)


def test_rank_order_adds_left_to_right() -> None:
    # 2^24 + 1 rounds to 2^24 each time, so the ones are lost one by one.
    assert total("rank", BIG, SMALL, SMALL, SMALL) == BIG


def test_pairwise_order_adds_pairs_first() -> None:
    assert total("pairwise", BIG, SMALL, SMALL, SMALL) == BIG + 2


def test_pairwise_of_three_moves_the_last_one_up() -> None:
    assert total("pairwise", SMALL, SMALL, BIG) == BIG + 2
    assert total("pairwise", BIG, SMALL, SMALL) == BIG


def test_one_partial_comes_back_unchanged() -> None:
    assert bytes(reduce_partials([payload(-0.0)], "rank", "<f4")) == payload(-0.0)


def test_double_precision_keeps_what_single_loses() -> None:
    parts = [struct.pack("<d", value) for value in (BIG, SMALL)]
    assert struct.unpack("<d", reduce_partials(parts, "rank", "<f8")) == (BIG + 1,)


@pytest.mark.parametrize("order", ["", "ring", "RANK"])
def test_unknown_order_is_our_mistake(order: str) -> None:
    with pytest.raises(MisuseError):
        reduce_partials([payload(1.0), payload(2.0)], order, "<f4")


def test_no_partials_is_our_mistake() -> None:
    with pytest.raises(MisuseError):
        reduce_partials([], "rank", "<f4")
