from __future__ import annotations

import math
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.tensor_text import (
    VALUES_SHOWN_MAX,
    read_values,
    statistics,
    statistics_line,
    value_lines,
)


@pytest.mark.parametrize(
    ("payload", "dtype", "values"),
    [
        (b"\x00\x00\x80\x3f\x00\x00\x00\xc0", "<f4", [1.0, -2.0]),
        (b"\x00\x00\x00\x00\x00\x00\xf0\x3f", "<f8", [1.0]),
        (b"", "<f4", []),
    ],
)
def test_payloads_are_little_endian(payload: bytes, dtype: str, values: list[float]) -> None:
    found = read_values(payload, dtype)
    assert found is not None
    assert list(found) == values


@pytest.mark.parametrize(("payload", "dtype"), [(b"123", "<f4"), (b"1234", "<f8"), (b"", "<i4")])
def test_other_payloads_are_refused(payload: bytes, dtype: str) -> None:
    assert read_values(payload, dtype) is None


def test_statistics_of_finite_values() -> None:
    found = statistics(array("f", [3.0, -4.0, 0.0]))
    assert (found.minimum, found.maximum, found.l2) == (-4.0, 3.0, 5.0)
    assert found.mean == pytest.approx(-1 / 3)
    assert (found.count, found.nan, found.infinite) == (3, 0, 0)


def test_values_that_are_not_finite_are_counted_and_left_out() -> None:
    found = statistics(array("f", [math.nan, math.inf, -math.inf, 2.0]))
    assert (found.count, found.nan, found.infinite) == (4, 1, 2)
    assert (found.minimum, found.maximum, found.mean, found.l2) == (2.0, 2.0, 2.0, 2.0)
    assert "NaN 1" in statistics_line(array("f", [math.nan]), "<f4")
    assert statistics(array("f")).mean is None


def test_large_values_do_not_overflow() -> None:
    found = statistics(array("d", [1e308, 1e308]))
    assert found.mean == 1e308
    assert found.l2 == pytest.approx(math.sqrt(2) * 1e308)


def test_a_long_tensor_is_cut_and_says_so() -> None:
    lines = list(value_lines(array("f", range(VALUES_SHOWN_MAX + 7)), "<f4"))
    assert "7 more" in lines[-1]
    assert sum(len(line.partition("]")[2].split()) for line in lines[:-1]) == VALUES_SHOWN_MAX


@given(st.lists(st.floats(width=32), max_size=20))
def test_shown_values_read_back_to_the_same_float32(numbers: list[float]) -> None:
    values = array("f", numbers)
    lines = list(value_lines(values, "<f4"))
    words = [word for line in lines for word in line.partition("]")[2].split()]
    again = array("f", [float(word) for word in words])
    assert [str(value) for value in again] == [str(value) for value in values]
    assert all(len(line) <= 100 for line in lines)
