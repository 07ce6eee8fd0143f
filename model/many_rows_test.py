"""Where the processor has no tile registers, only that they are refused is tested."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import MisuseError
from model import many_rows
from model.few_rows import Held
from model.many_rows import PANEL, ROWS_MAX, ManyRows, Parts, available
from model.ops import Array
from model.rounding import added, multiplied_and_added

# Whole and cut panels, tiles, steps of the depth, and blocks of 256 rows of W and 192 of the depth.
ROWS = (1, 15, 16, 17, 31, 32, 33, 64, 65, 255, 256)
COLUMNS = (1, 15, 16, 17, 31, 32, 33, 64, 257, 290)
DEPTHS = (1, 15, 16, 17, 31, 32, 33, 191, 192, 193, 230, 416)

with_tiles = pytest.mark.parametrize("kernel", [ManyRows][: available()])
Kernel = type[ManyRows]


def weight_of(columns: int, depth: int, seed: int = 0) -> Held:
    values = np.random.default_rng(seed).standard_normal((columns, depth)).astype(np.float32)
    return np.ascontiguousarray((values.view(np.uint32) >> 16).astype(np.uint16))


def wide(bits: Held) -> Array:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rows_of(rows: int, depth: int) -> Array:
    return np.random.default_rng(rows).standard_normal((rows, depth)).astype(np.float32)


def cut(x: Array) -> Parts:
    parts = Parts(x)
    parts.cut(0, parts.panels)
    return parts


def product(kernel: Kernel, x: Array, weight: Held) -> Array:
    result: Array = np.full((len(x), len(weight)), np.nan, np.float32)
    kernel(weight).multiply(cut(x), 0, len(weight), result)
    return result


def parts_of(value: float) -> list[float]:
    """High, middle and low eight bits."""
    parts = []
    left = np.float32(value)
    for _ in range(3):
        part = (left.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
        parts.append(float(part))
        left = left - part
    assert left == 0
    return parts


def in_order(x: Array, w: Array) -> float:
    """One result as the kernel's comment defines it, in exact arithmetic."""
    total = 0.0
    for at in range(0, len(x), 32):
        cuts = [parts_of(value) for value in x[at : at + 32]]
        for part in range(3):
            chains = [0.0, 0.0]
            for place, weight in enumerate(w[at : at + 32].tolist()):
                chain = chains[place % 2]
                chains[place % 2] = multiplied_and_added(cuts[place][part], weight, chain)
            total = added(total, added(*chains))
    return total


def test_tile_registers_are_used_where_there_are_any() -> None:
    flags = set()
    for line in Path("/proc/cpuinfo").read_text("ascii").splitlines():
        if line.startswith("flags"):
            flags = set(line.split(":")[1].split())
    assert available() == ({"amx_tile", "amx_bf16", "avx512f", "avx512bw"} <= flags)


@with_tiles
def test_results_are_those_of_the_documented_order(kernel: Kernel) -> None:
    for depth in (1, 5, 32, 37, 70, 230):
        x, weight = rows_of(3, depth), weight_of(4, depth)
        expected = [[in_order(row, column) for column in wide(weight)] for row in x]
        np.testing.assert_array_equal(product(kernel, x, weight), expected)


@with_tiles
def test_a_result_does_not_depend_on_its_tile(kernel: Kernel) -> None:
    """Rows and columns together are what they are in the largest product, which is right."""
    for depth in DEPTHS:
        x, weight = rows_of(max(ROWS), depth), weight_of(max(COLUMNS), depth)
        whole = product(kernel, x, weight)
        exact = x.astype(np.float64) @ wide(weight).astype(np.float64).T
        np.testing.assert_allclose(whole, exact, rtol=0, atol=1e-4)
        for rows in ROWS:
            found = product(kernel, x[-rows:], weight)
            np.testing.assert_array_equal(found, whole[-rows:])
        for columns in COLUMNS:
            found = product(kernel, x[:40], weight[-columns:].copy())
            np.testing.assert_array_equal(found, whole[:40, -columns:])


@with_tiles
def test_three_parts_are_all_of_a_number(kernel: Kernel) -> None:
    """Against one, every value comes back as it is: no bit of it is lost."""
    ones = np.eye(64, dtype=np.float32)
    weight = np.ascontiguousarray((ones.view(np.uint32) >> 16).astype(np.uint16))
    bits = np.random.default_rng(0).integers(0, 1 << 32, (ROWS_MAX, 64), np.uint32)
    exponents = bits >> 23 & 0xFF
    # So that the low part is no subnormal, which tile registers take for zero.
    bits[(exponents < 24) | (exponents == 0xFF)] = 0x80000000
    x = bits.view(np.float32)
    assert (x != 0).sum() > x.size // 2
    np.testing.assert_array_equal(product(kernel, x, weight), x)


@with_tiles
@given(
    rows=st.integers(1, 80),
    columns=st.integers(1, 300),
    depth=st.integers(1, 400),
    cuts=st.tuples(st.integers(0, 300), st.integers(0, 300)),
    panels=st.integers(0, 3),
)
def test_parts_make_the_whole(
    kernel: Kernel, rows: int, columns: int, depth: int, cuts: tuple[int, int], panels: int
) -> None:
    x, weight = rows_of(rows, depth), weight_of(columns, depth)
    whole = product(kernel, x, weight)
    parts = Parts(x)
    panels = min(panels, parts.panels)
    parts.cut(panels, parts.panels)
    parts.cut(0, panels)
    result: Array = np.full((rows, columns), np.nan, np.float32)
    edges = sorted({0, columns, *(min(cut, columns) for cut in cuts)})
    for start, stop in pairwise(edges):
        kernel(weight).multiply(parts, start, stop, result)
    np.testing.assert_array_equal(result, whole)


@with_tiles
def test_nothing_is_written_outside_the_part(kernel: Kernel) -> None:
    weight = weight_of(70, 33)
    result: Array = np.full((50, 70), 7, np.float32)
    kernel(weight).multiply(cut(rows_of(40, 33)), 5, 60, result[:40])
    assert (result[:40, 5:60] != 7).all()
    result[:40, 5:60] = 7
    assert (result == 7).all()


@with_tiles
@pytest.mark.parametrize("depth", [40, 50])
def test_values_that_are_not_finite_stay_in_their_row_and_column(
    kernel: Kernel, depth: int
) -> None:
    """What comes of them is not finite; an infinity may become NaN, as a part of x is zero.

    The first ones of a row are those that whoever reads the row before too far would meet.
    """
    x, weight = rows_of(40, depth), weight_of(40, depth)
    x[2, -1] = np.nan
    x[33, 0] = -np.inf
    weight[[4, 9], [-1, 0]] = 0x7F80
    found = product(kernel, x, weight)
    assert not np.isfinite(found[[2, 33]]).any()
    assert not np.isfinite(found[:, [4, 9]]).any()
    assert np.isfinite(np.delete(np.delete(found, [2, 33], axis=0), [4, 9], axis=1)).all()


GOOD: Array = np.zeros((2, 4), np.float32)
READ_ONLY: Array = np.zeros((2, 4), np.float32)
READ_ONLY.flags.writeable = False
CUT = Parts(rows_of(2, 8))
WRONG_ROWS: dict[str, Callable[[], object]] = {
    "float64 rows": lambda: Parts(np.zeros((2, 8))),
    "one row without a dimension": lambda: Parts(np.zeros(8, np.float32)),
    "no rows": lambda: Parts(np.zeros((0, 8), np.float32)),
    "too many rows": lambda: Parts(np.zeros((ROWS_MAX + 1, 8), np.float32)),
    "panels outside": lambda: CUT.cut(0, 2),
    "a negative panel": lambda: CUT.cut(-1, 1),
    "panels backwards": lambda: CUT.cut(1, 0),
}
WRONG_PRODUCTS: dict[str, Callable[[Kernel], object]] = {
    "another depth": lambda kernel: kernel(weight_of(4, 9)).multiply(CUT, 0, 4, GOOD),
    "too many columns": lambda kernel: kernel(weight_of(4, 8)).multiply(CUT, 0, 5, GOOD),
    "a negative column": lambda kernel: kernel(weight_of(4, 8)).multiply(CUT, -1, 4, GOOD),
    "columns backwards": lambda kernel: kernel(weight_of(4, 8)).multiply(CUT, 3, 2, GOOD),
    "a short result": lambda kernel: kernel(weight_of(4, 8)).multiply(CUT, 0, 4, GOOD[:1]),
    "a narrow result": lambda kernel: kernel(weight_of(5, 8)).multiply(CUT, 0, 4, GOOD),
    "a float64 result": lambda kernel: kernel(weight_of(4, 8)).multiply(
        CUT, 0, 4, np.zeros((2, 4))
    ),
    "a result that is only read": lambda kernel: kernel(weight_of(4, 8)).multiply(
        CUT, 0, 4, READ_ONLY
    ),
    "a weight of another type": lambda kernel: kernel(np.zeros((4, 8), np.float32)),
    "a weight with gaps": lambda kernel: kernel(weight_of(8, 8)[::2]),
}


@pytest.mark.parametrize("name", WRONG_ROWS)
def test_wrong_rows_are_refused_before_memory_is_touched(name: str) -> None:
    with pytest.raises(MisuseError):
        WRONG_ROWS[name]()


@with_tiles
@pytest.mark.parametrize("name", WRONG_PRODUCTS)
def test_a_wrong_product_is_refused_before_memory_is_touched(kernel: Kernel, name: str) -> None:
    with pytest.raises(MisuseError):
        WRONG_PRODUCTS[name](kernel)


def test_a_processor_without_them_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many_rows, "available", lambda: False)
    with pytest.raises(MisuseError):
        ManyRows(weight_of(4, 8))


def test_a_panel_is_two_tiles() -> None:
    assert [Parts(rows_of(rows, 4)).panels for rows in (1, PANEL, PANEL + 1)] == [1, 1, 2]
