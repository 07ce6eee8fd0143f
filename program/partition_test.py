"""The ranks' ranges cover every index exactly once; what does not divide is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import ConfigError
from program.partition import (
    Columns,
    Cut,
    IndexRange,
    Replicated,
    Rows,
    Section,
    Sections,
    ShardRule,
    cut,
    divide_exactly,
    local_shape,
)

counts = st.integers(1, 6)


def indices(piece: Cut) -> list[int]:
    return [index for r in piece.ranges for index in range(r.start, r.stop)]


@given(counts, counts, counts, st.integers(1, 5), st.booleans())
def test_rows_and_columns_cover_every_index_once_and_in_order(
    world_size: int, units_per_rank: int, unit_size: int, other: int, by_rows: bool
) -> None:
    units = world_size * units_per_rank
    extent = units * unit_size
    rule: ShardRule = Rows(units) if by_rows else Columns(units)
    shape = (extent, other) if by_rows else (other, extent)
    pieces = [cut(rule, shape, rank, world_size) for rank in range(world_size)]
    assert {piece.axis for piece in pieces} == {0 if by_rows else 1}
    assert [index for piece in pieces for index in indices(piece)] == list(range(extent))
    assert {len(indices(piece)) for piece in pieces} == {extent // world_size}


@given(counts, st.lists(st.tuples(counts, counts), min_size=1, max_size=4))
def test_sections_cover_every_index_once_and_keep_their_order(
    world_size: int, per_rank: list[tuple[int, int]]
) -> None:
    sections = tuple(Section(world_size * units, size) for units, size in per_rank)
    rows = sum(section.units * section.unit_size for section in sections)
    pieces = [cut(Sections(sections), (rows, 3), rank, world_size) for rank in range(world_size)]
    assert sorted(index for piece in pieces for index in indices(piece)) == list(range(rows))
    offset = 0
    for number, section in enumerate(sections):
        extent = section.units * section.unit_size
        ranges = [piece.ranges[number] for piece in pieces]
        joined = [index for r in ranges for index in range(r.start, r.stop)]
        assert joined == list(range(offset, offset + extent))
        offset += extent


@given(counts, counts, counts)
def test_a_unit_is_never_divided(world_size: int, units_per_rank: int, unit_size: int) -> None:
    units = world_size * units_per_rank
    for rank in range(world_size):
        (piece,) = cut(Rows(units), (units * unit_size, 1), rank, world_size).ranges
        assert piece.start % unit_size == 0
        assert piece.stop % unit_size == 0


def test_a_replicated_tensor_is_not_cut() -> None:
    assert cut(Replicated(), (3, 5), 1, 2) == Cut(None, ())
    assert local_shape(Replicated(), (3, 5), 1, 2) == (3, 5)


def test_local_shapes() -> None:
    assert local_shape(Rows(4), (8, 3), 1, 2) == (4, 3)
    assert local_shape(Columns(4), (3, 8, 5), 0, 4) == (3, 2, 5)
    sections = Sections((Section(2, 4), Section(6, 2)))
    assert local_shape(sections, (20, 1, 4), 1, 2) == (10, 1, 4)
    assert cut(sections, (20, 1, 4), 1, 2).ranges == (IndexRange(4, 8), IndexRange(14, 20))


@pytest.mark.parametrize(
    ("rule", "shape", "rank", "world_size"),
    [
        (Rows(4), (8, 1), 0, 3),
        (Columns(4), (1, 8), 0, 8),
        (Rows(3), (8, 1), 0, 1),
        (Sections((Section(2, 1), Section(3, 1))), (5,), 0, 2),
        (Sections((Section(2, 1),)), (3,), 0, 1),
        (Rows(4), (8, 1), 2, 2),
        (Rows(4), (8, 1), -1, 2),
        (Replicated(), (8, 1), 1, 1),
        (Rows(4), (8, 1), 0, 0),
    ],
)
def test_what_does_not_divide_is_refused(
    rule: ShardRule, shape: tuple[int, ...], rank: int, world_size: int
) -> None:
    with pytest.raises(ConfigError) as refusal:
        cut(rule, shape, rank, world_size)
    assert refusal.value.code == "config.invalid"


@given(st.integers(1, 400), st.integers(-2, 40))
def test_exact_division(numerator: int, denominator: int) -> None:
    if denominator > 0 and numerator % denominator == 0:
        assert divide_exactly(numerator, denominator, "n") * denominator == numerator
        return
    with pytest.raises(ConfigError) as refusal:
        divide_exactly(numerator, denominator, "n")
    (problem,) = refusal.value.problems
    assert (problem.field, problem.value) == ("n", str(numerator))
