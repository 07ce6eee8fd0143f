"""The choice of the cases of each tier."""

from __future__ import annotations

import pytest

from tools.python.tiers import mostly_exhaustive


def test_the_others_have_the_marker() -> None:
    found = mostly_exhaustive(range(4), lambda number: number == 2)
    assert [case.values for case in found] == [(0,), (1,), (2,), (3,)]
    names = [[mark.name for mark in case.marks] for case in found]
    assert names == [["exhaustive"], ["exhaustive"], [], ["exhaustive"]]


def test_tuples() -> None:
    cases = [("a", 1), ("b", 2)]
    found = mostly_exhaustive(cases, lambda case: case[1] == 1)
    assert [case.values for case in found] == [("a", 1), ("b", 2)]
    found = mostly_exhaustive(cases, lambda case: case[1] == 1, unpack=False)
    assert [case.values for case in found] == [(("a", 1),), (("b", 2),)]


@pytest.mark.parametrize("always", [True, False])
def test_one_tier_for_all_is_refused(always: bool) -> None:
    with pytest.raises(ValueError, match="tier"):
        mostly_exhaustive([1, 2], lambda _: always)
