"""How streams are cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.delivery import Delivery, byte_by_byte, seeded_cuts, whole

MAKERS: list[Callable[[], Delivery]] = [
    lambda: whole,
    lambda: byte_by_byte,
    lambda: seeded_cuts(5),
]


@pytest.mark.parametrize("make", MAKERS)
@given(waiting=st.integers(1, 100_000))
def test_something_is_delivered_and_no_more_than_there_is(
    make: Callable[[], Delivery], waiting: int
) -> None:
    assert 1 <= make()(waiting) <= waiting


@pytest.mark.parametrize("make", MAKERS)
def test_nothing_is_delivered_of_nothing(make: Callable[[], Delivery]) -> None:
    assert make()(0) == 0


def test_the_three_cuts() -> None:
    assert (whole(1000), byte_by_byte(1000)) == (1000, 1)
    cuts = [[cut(1000) for _ in range(50)] for cut in (seeded_cuts(1), seeded_cuts(1))]
    assert cuts[0] == cuts[1]
    other = seeded_cuts(2)
    assert cuts[0] != [other(1000) for _ in range(50)]
    assert len(set(cuts[0])) > 10
