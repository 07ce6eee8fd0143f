from __future__ import annotations

import struct
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import MisuseError
from model import few_rows
from model.few_rows import HELD_NUMPY, FewRows, Held, InstructionSet, available
from model.ops import Array
from model.rounding import added, multiplied_and_added, rounded
from program.checkpoint import StoredDtype

F32, F16, BF16 = StoredDtype.FLOAT32, StoredDtype.FLOAT16, StoredDtype.BFLOAT16
SETS = available()
# Every width of a tile, whole and cut; no lane, one, all, and some of the last sixteen.
ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 23, 24)
COLUMNS = (1, 2, 7, 8, 9, 25)
DEPTHS = (1, 15, 16, 17, 31, 48, 77)


def held_bits(values: Array, held: StoredDtype) -> Held:
    """Values whose low bits are lost in bfloat16."""
    if held is BF16:
        return np.ascontiguousarray((values.view(np.uint32) >> 16).astype(np.uint16))
    return values.astype(HELD_NUMPY[held])


def wide(bits: Held, held: StoredDtype) -> Array:
    if held is BF16:
        return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits.astype(np.float32)


def weight_of(columns: int, depth: int, held: StoredDtype, seed: int = 0) -> Held:
    rng = np.random.default_rng(seed)
    return held_bits(rng.standard_normal((columns, depth)).astype(np.float32), held)


def rows_of(rows: int, depth: int) -> Array:
    return np.random.default_rng(rows).standard_normal((rows, depth)).astype(np.float32)


def product(x: Array, weight: Held, held: StoredDtype, instructions: InstructionSet) -> Array:
    few = FewRows(weight, held, instructions)
    result: Array = np.full((len(x), len(weight)), np.nan, np.float32)
    few.multiply(few.pack(x), 0, len(weight), result)
    return result


def in_order(x: Array, w: Array) -> float:
    """One result as the kernel's comment defines it, in exact arithmetic."""
    lanes = [0.0] * 16
    for at, (value, weight) in enumerate(zip(x.tolist(), w.tolist(), strict=True)):
        lanes[at % 16] = multiplied_and_added(value, weight, lanes[at % 16])
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [added(*pair) for pair in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes[0]


def test_a_processor_of_this_decade_has_the_kernel() -> None:
    assert InstructionSet.AVX2 in SETS


@pytest.mark.parametrize("held", StoredDtype)
@pytest.mark.parametrize("instructions", SETS)
def test_results_are_those_of_the_documented_order(
    held: StoredDtype, instructions: InstructionSet
) -> None:
    for depth in (5, 16, 37):
        x, weight = rows_of(3, depth), weight_of(4, depth, held)
        expected = [[in_order(row, column) for column in wide(weight, held)] for row in x]
        np.testing.assert_array_equal(product(x, weight, held, instructions), expected)


@pytest.mark.parametrize("held", StoredDtype)
@pytest.mark.parametrize("instructions", SETS)
def test_a_result_does_not_depend_on_its_tile(
    held: StoredDtype, instructions: InstructionSet
) -> None:
    """Rows together are what each row and each column gives alone, with the first set."""
    for depth in DEPTHS:
        x, weight = rows_of(max(ROWS), depth), weight_of(max(COLUMNS), depth, held)
        alone = np.empty((len(x), len(weight)), np.float32)
        for r in range(len(x)):
            for c in range(len(weight)):
                one = product(x[r : r + 1], weight[c : c + 1].copy(), held, SETS[0])
                alone[r, c] = one[0, 0]
        np.testing.assert_allclose(alone, x @ wide(weight, held).T, rtol=0, atol=1e-4)
        for rows in ROWS:
            for columns in COLUMNS:
                found = product(x[:rows], weight[:columns].copy(), held, instructions)
                np.testing.assert_array_equal(found, alone[:rows, :columns])


@given(
    rows=st.integers(1, 24),
    columns=st.integers(1, 70),
    depth=st.integers(1, 200),
    cuts=st.tuples(st.integers(0, 70), st.integers(0, 70)),
    held=st.sampled_from(StoredDtype),
)
def test_parts_of_the_columns_make_the_whole(
    rows: int, columns: int, depth: int, cuts: tuple[int, int], held: StoredDtype
) -> None:
    x, weight = rows_of(rows, depth), weight_of(columns, depth, held)
    whole = product(x, weight, held, SETS[0])
    few = FewRows(weight, held, SETS[-1])
    packed = few.pack(x)
    result: Array = np.full((rows, columns), np.nan, np.float32)
    edges = sorted({0, columns, *(min(cut, columns) for cut in cuts)})
    for start, stop in pairwise(edges):
        few.multiply(packed, start, stop, result)
    np.testing.assert_array_equal(result, whole)


def test_nothing_is_written_outside_the_part() -> None:
    x, weight = rows_of(5, 33), weight_of(20, 33, BF16)
    for instructions in SETS:
        few = FewRows(weight, BF16, instructions)
        result: Array = np.full((5, 20), 7, np.float32)
        few.multiply(few.pack(x), 3, 12, result)
        assert (result[:, :3] == 7).all()
        assert (result[:, 12:] == 7).all()
        assert (result[:, 3:12] != 7).all()


def test_values_that_are_not_finite_stay_in_their_row_and_column() -> None:
    x, weight = rows_of(8, 40), weight_of(9, 40, F32)
    x[2, 39] = np.nan
    weight[4, 39] = np.inf
    for instructions in SETS:
        found = product(x, weight, F32, instructions)
        assert np.isnan(found[2]).all()
        others = np.delete(found, 2, axis=0)
        assert np.isinf(others[:, 4]).all()
        assert np.isfinite(np.delete(others, 4, axis=1)).all()


@pytest.mark.parametrize("instructions", SETS)
def test_every_sixteen_bits_widen_to_their_value(instructions: InstructionSet) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    for held, values in ((BF16, bits), (F16, bits.view(np.float16))):
        for cut in (0, 1, 13):
            weight = np.ascontiguousarray(values[: len(values) - cut].reshape(1, -1))
            result: Array = np.empty(weight.shape, np.float32)
            FewRows(weight, held, instructions).widen(0, 1, result)
            np.testing.assert_array_equal(result, wide(weight, held))
            assert (np.signbit(result) == np.signbit(wide(weight, held))).all()


def test_rows_of_a_part_are_widened() -> None:
    weight = weight_of(6, 19, BF16)
    result: Array = np.empty((3, 19), np.float32)
    FewRows(weight, BF16, SETS[0]).widen(2, 5, result)
    np.testing.assert_array_equal(result, wide(weight, BF16)[2:5])


GOOD: Array = np.zeros((2, 4), np.float32)
READ_ONLY: Array = np.zeros((2, 4), np.float32)
READ_ONLY.flags.writeable = False
FEW = FewRows(weight_of(4, 8, F32), F32, SETS[0])
PACKED = FEW.pack(rows_of(2, 8))
MISUSES: dict[str, Callable[[], object]] = {
    "another depth": lambda: FEW.pack(rows_of(2, 9)),
    "float64 rows": lambda: FEW.pack(np.zeros((2, 8))),
    "one row without a dimension": lambda: FEW.pack(np.zeros(8, np.float32)),
    "rows of another weight": lambda: FEW.multiply(
        FewRows(weight_of(4, 9, F32), F32, SETS[0]).pack(rows_of(2, 9)), 0, 4, GOOD
    ),
    "too many columns": lambda: FEW.multiply(PACKED, 0, 5, GOOD),
    "a negative column": lambda: FEW.multiply(PACKED, -1, 4, GOOD),
    "columns backwards": lambda: FEW.multiply(PACKED, 3, 2, GOOD),
    "a narrow result": lambda: FEW.multiply(PACKED, 0, 4, np.zeros((2, 3), np.float32)),
    "a short result": lambda: FEW.multiply(PACKED, 0, 4, np.zeros((1, 4), np.float32)),
    "a float64 result": lambda: FEW.multiply(PACKED, 0, 4, np.zeros((2, 4))),
    "a result that is only read": lambda: FEW.multiply(PACKED, 0, 4, READ_ONLY),
    "a result with gaps": lambda: FEW.multiply(PACKED, 0, 4, np.zeros((2, 8), np.float32)[:, ::2]),
    "a small block": lambda: FEW.widen(0, 2, np.zeros((1, 8), np.float32)),
    "rows outside": lambda: FEW.widen(3, 5, np.zeros((2, 8), np.float32)),
    "a float64 block": lambda: FEW.widen(0, 2, np.zeros((2, 8))),
    "a block with gaps": lambda: FEW.widen(0, 2, np.zeros((4, 8), np.float32)[::2]),
    "a weight of another type": lambda: FewRows(weight_of(4, 8, F32), BF16, SETS[0]),
    "a weight with gaps": lambda: FewRows(weight_of(4, 8, F32)[::2], F32, SETS[0]),
}


@pytest.mark.parametrize("name", MISUSES)
def test_a_misuse_is_refused_before_memory_is_touched(name: str) -> None:
    with pytest.raises(MisuseError):
        MISUSES[name]()


def test_rows_are_packed_for_one_instruction_set() -> None:
    weight = weight_of(4, 8, F32)
    packed = FewRows(weight, F32, SETS[0]).pack(rows_of(2, 8))
    for other in SETS[1:]:
        with pytest.raises(MisuseError):
            FewRows(weight, F32, other).multiply(packed, 0, 4, GOOD)


def test_a_processor_without_it_has_no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for level, expected in enumerate(((), (InstructionSet.AVX2,), tuple(InstructionSet))):

        class Library:
            @staticmethod
            def instruction_set(level: int = level) -> int:
                return level

        monkeypatch.setattr(few_rows, "library", Library)
        assert available.__wrapped__() == expected


def test_bits_of_a_float_are_as_the_test_thinks() -> None:
    assert struct.pack("<f", rounded(Fraction(1) + Fraction(1, 1 << 24))) == struct.pack("<f", 1)
