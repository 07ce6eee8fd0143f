"""Slices put back together are the whole tensor, for every rule."""

from __future__ import annotations

import numpy as np
import pytest

from errors import ConfigError
from model.shard import take
from program.partition import Columns, Replicated, Rows, Section, Sections


@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize(("rule", "axis"), [(Rows(4), 0), (Rows(8), 0), (Columns(4), 1)])
def test_slices_in_rank_order_are_the_tensor(
    rule: Rows | Columns, axis: int, world_size: int
) -> None:
    whole = np.arange(8.0 * 12).reshape(8, 12)
    pieces = [take(rule, whole, rank, world_size) for rank in range(world_size)]
    assert all(piece.flags.c_contiguous for piece in pieces)
    assert np.array_equal(np.concatenate(pieces, axis), whole)


def test_a_slice_is_a_copy() -> None:
    whole = np.zeros((4, 4))
    take(Rows(4), whole, 0, 1)[:] = 1.0
    assert not whole.any()


def test_sections_are_cut_one_by_one() -> None:
    rule = Sections((Section(2, 1), Section(4, 2)))
    whole = np.arange(10)
    assert take(rule, whole, 0, 2).tolist() == [0, 2, 3, 4, 5]
    assert take(rule, whole, 1, 2).tolist() == [1, 6, 7, 8, 9]


def test_a_replicated_tensor_is_whole_and_contiguous() -> None:
    whole = np.arange(6.0).reshape(2, 3)
    assert take(Replicated(), whole.T, 3, 4).tolist() == whole.T.tolist()
    assert take(Replicated(), whole.T, 3, 4).flags.c_contiguous


def test_a_rule_that_does_not_divide_is_refused() -> None:
    with pytest.raises(ConfigError):
        take(Rows(4), np.zeros((4, 1)), 0, 3)
