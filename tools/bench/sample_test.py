"""Medians and spread."""

from __future__ import annotations

import statistics

import pytest

from tools.bench.sample import Sample, table


def test_median_and_tenths() -> None:
    assert Sample.of(list(range(101))) == Sample(50, 10, 90, 101)
    assert Sample.of([4.0, 1.0]) == Sample(2.5, 1.0, 4.0, 2)
    assert Sample.of([3.0]) == Sample(3.0, 3.0, 3.0, 1)


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(statistics.StatisticsError):
        Sample.of([])


def test_a_table_is_markdown() -> None:
    assert table(["a", "b"], [["1", "2"]]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"
