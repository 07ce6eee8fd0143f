from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.state import PageTable, RankState, state_bytes
from program.qwen35 import Variant, qwen35_program
from program.qwen35_config import parse_config
from program.spec import Dtype, ProgramSpec
from testdata.golden.shapes import SHAPES, config


def program(variant: Variant, world_size: int, compute: Dtype = Dtype.FLOAT32) -> ProgramSpec:
    parsed = parse_config(json.dumps(config(SHAPES["tp4"])).encode())
    return qwen35_program(parsed, variant, world_size, compute)


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("world_size", [1, 2, 4])
@pytest.mark.parametrize("compute", list(Dtype))
def test_arenas_hold_the_bytes_of_the_formula_and_no_replica(
    variant: Variant, world_size: int, compute: Dtype
) -> None:
    spec = program(variant, world_size, compute)
    state = RankState(spec, slots=3, pages=5, page_tokens=4, poison=False)
    whole = RankState(program(variant, 1, compute), slots=3, pages=5, page_tokens=4, poison=False)
    assert state.allocated_bytes == state_bytes(spec.state, 3, 20)
    assert state.keys.nbytes * world_size == whole.keys.nbytes
    share = world_size if variant is Variant.SHARDED else 1
    assert state.recurrent.nbytes * share == whole.recurrent.nbytes
    assert state.conv.nbytes * share == whole.conv.nbytes
    assert state.recurrent.dtype == np.dtype(compute.value)


@pytest.mark.parametrize("poison", [True, False])
def test_a_slot_is_zero_when_admitted_and_cleared_when_released(poison: bool) -> None:
    state = RankState(program(Variant.SHARDED, 2), 3, 5, 4, poison=poison)
    cleared = np.isnan if poison else (lambda array: array == 0)
    assert cleared(state.recurrent).all()
    assert cleared(state.keys).all()
    state.admit(1)
    assert not state.recurrent[:, 1].any()
    assert not state.conv[:, 1].any()
    state.recurrent[:, 1], state.conv[:, 1] = 7, 8
    state.keys[...] = state.values[...] = 9
    state.move(1, 0)
    assert (state.recurrent[:, 0] == 7).all()
    assert (state.conv[:, 0] == 8).all()
    assert cleared(state.recurrent[:, 1]).all()
    state.release(0, [0, 3])
    assert cleared(state.recurrent[:, 0]).all()
    assert cleared(state.conv[:, 0]).all()
    for cached in (state.keys, state.values):
        for page in range(5):
            held = cached[:, :, 4 * page : 4 * page + 4]
            assert cleared(held).all() if page in (0, 3) else (held == 9).all()


@given(
    pages=st.sets(st.integers(0, 11), min_size=1, max_size=6).map(sorted),
    page_tokens=st.integers(1, 5),
    data=st.data(),
)
def test_positions_are_located_by_the_page_table(
    pages: list[int], page_tokens: int, data: st.DataObject
) -> None:
    total = len(pages) * page_tokens
    start = data.draw(st.integers(0, total - 1))
    stop = data.draw(st.integers(start + 1, total))
    expected = [pages[p // page_tokens] * page_tokens + p % page_tokens for p in range(start, stop)]
    where = PageTable(pages, page_tokens).locate(start, stop)
    assert list(np.arange(12 * page_tokens)[where]) == expected
    touched = pages[start // page_tokens : (stop - 1) // page_tokens + 1]
    adjacent = touched[-1] - touched[0] == len(touched) - 1
    assert isinstance(where, slice) == adjacent


def test_the_context_of_scattered_pages_reads_back_as_written() -> None:
    state = RankState(program(Variant.SHARDED, 2), 1, 6, 4, poison=True)
    rng = np.random.default_rng(0)
    kv_heads, head_dim = state.keys.shape[1], state.keys.shape[3]
    keys, values = rng.standard_normal((2, 11, kv_heads, head_dim)).astype(np.float32)
    pages, other = PageTable([1, 2, 5], 4), PageTable([0, 3, 4], 4)
    state.write_context(1, other, 0, -keys, -values)
    for start, stop in ((0, 1), (1, 6), (6, 11)):
        state.write_context(1, pages, start, keys[start:stop], values[start:stop])
    for start, stop in ((0, 11), (2, 7), (10, 11), (8, 11)):
        found = state.read_context(1, pages, start, stop)
        np.testing.assert_array_equal(found[0], keys[start:stop].swapaxes(0, 1))
        np.testing.assert_array_equal(found[1], values[start:stop].swapaxes(0, 1))
    assert np.isnan(state.keys[0]).all()
