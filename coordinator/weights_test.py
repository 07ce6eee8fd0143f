"""slice_bytes against a plain index-by-index selection."""

from __future__ import annotations

import pytest

from coordinator.weights import slice_bytes
from program.partition import Columns, Replicated, Rows, Section, Sections, ShardRule

SHAPE = (8, 4)
DATA = bytes(range(8 * 4 * 2))


def selected(rows: list[int], columns: list[int]) -> bytes:
    return b"".join(
        DATA[(row * 4 + column) * 2 : (row * 4 + column) * 2 + 2]
        for row in rows
        for column in columns
    )


@pytest.mark.parametrize(
    ("rule", "rank", "rows", "columns"),
    [
        (Replicated(), 1, list(range(8)), list(range(4))),
        (Rows(4), 0, [0, 1, 2, 3], list(range(4))),
        (Rows(4), 1, [4, 5, 6, 7], list(range(4))),
        (Columns(2), 0, list(range(8)), [0, 1]),
        (Columns(4), 1, list(range(8)), [2, 3]),
        (Sections((Section(2, 1), Section(2, 3))), 1, [1, 5, 6, 7], list(range(4))),
    ],
)
def test_slice_matches_selection(
    rule: ShardRule, rank: int, rows: list[int], columns: list[int]
) -> None:
    assert slice_bytes(rule, SHAPE, 2, DATA, rank, 2) == selected(rows, columns)
