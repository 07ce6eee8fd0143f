"""The estimate and its interval against published critical values, and against chance."""

from __future__ import annotations

import random

import pytest

from errors import MisuseError
from tools.bench.paired import Shift, shift


def test_known_intervals() -> None:
    # Tables of the signed-rank test (two-sided, 5 %): critical values 0, 8 and 52 of 6, 10 and 20.
    for count, critical in ((6, 0), (10, 8), (20, 52)):
        values = [float(value) for value in range(count)]
        means = sorted((a + b) / 2 for at, a in enumerate(values) for b in values[at:])
        found = shift(values)
        assert found.estimate == (count - 1) / 2
        assert (found.low, found.high) == (means[critical], means[-1 - critical])


def test_few_pairs_have_the_widest_interval() -> None:
    assert shift([1.0, 2.0, 6.0]) == Shift(2.75, 1.0, 6.0)
    assert shift([3.0]) == Shift(3.0, 3.0, 3.0)
    with pytest.raises(MisuseError):
        shift([])


def test_one_disturbed_turn_moves_little() -> None:
    calm = [1.0 + at / 100 for at in range(20)]
    disturbed = shift([*calm[:-1], 1000.0])
    assert disturbed.estimate == pytest.approx(shift(calm).estimate, abs=0.02)
    assert disturbed.high < 2


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance = random.Random(1)
    held = 0
    for _ in range(400):
        found = shift([chance.gauss(0.3, 1.0) for _ in range(15)])
        held += found.low <= 0.3 <= found.high
    assert 370 <= held <= 394


def test_share() -> None:
    assert Shift(1.0, -1.0, 2.0).share_of(4.0) == Shift(0.25, -0.25, 0.5)
