from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import linear
from model.crew import Crew
from model.few_rows import HELD_NUMPY, Held, available
from model.linear import NO_KERNELS, Kernels, Linear, narrow, widen
from model.ops import Array
from program.checkpoint import StoredDtype

F32, BF16 = StoredDtype.FLOAT32, StoredDtype.BFLOAT16
CREW = Crew(2)
# The largest finite bfloat16; half a step above it rounds to infinity, as IEEE 754 has it.
LARGEST = 255 * 2.0**120


def widened(bits: Held, dtype: StoredDtype) -> Held:
    result: Held = np.empty(bits.shape, np.float32)
    widen(bits, dtype, result)
    return result


def test_every_bfloat16_widens_to_its_value() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    expected = (bits.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(widened(bits, BF16).view(np.uint32), expected.view(np.uint32))
    number = ~np.isnan(expected)
    wide = np.empty(number.sum(), np.float64)
    widen(bits[number], BF16, wide)
    np.testing.assert_array_equal(wide, expected[number])


def test_every_finite_bfloat16_narrows_to_itself() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[(bits & 0x7F80) != 0x7F80]
    np.testing.assert_array_equal(narrow(widened(bits, BF16), F32, BF16), bits)


@given(x=st.floats(-LARGEST, LARGEST, width=32))
def test_rounding_to_bfloat16_takes_the_nearest_and_ties_to_even(x: float) -> None:
    (bits,) = narrow(np.array([x], np.float32), F32, BF16)
    (rounded,) = widened(np.array([bits], np.uint16), BF16)
    neighbours = np.array([max(int(bits) - 1, 0), min(int(bits) + 1, 0xFFFF)], np.uint16)
    around = widened(neighbours, BF16)
    error = abs(float(rounded) - x)
    for neighbour in around[np.isfinite(around)]:
        assert error <= abs(float(neighbour) - x)
        if error == abs(float(neighbour) - x) and neighbour != rounded:
            assert bits % 2 == 0


def test_values_that_are_not_finite_keep_their_kind() -> None:
    values = np.array([np.inf, -np.inf, np.nan, 3.4e38], np.float32)
    values.view(np.uint32)[2] = 0x7FFFFFFF  # a NaN whose rounding would carry into the sign
    found = widened(narrow(values, F32, BF16), BF16)
    assert found[0] == np.inf
    assert found[1] == -np.inf
    assert np.isnan(found[2])
    assert found[3] == np.inf


def close(found: Array, expected: Array, compute: type) -> None:
    tolerance = 2e-5 if compute is np.float32 else 1e-13
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("stored", list(StoredDtype))
@pytest.mark.parametrize("held", list(StoredDtype))
@pytest.mark.parametrize("compute", [np.float32, np.float64])
@pytest.mark.parametrize("tokens", [1, 3, 32, 33, 70, 300])
@pytest.mark.parametrize("block_bytes", [1, 4000, 1 << 20])
@pytest.mark.parametrize("kernels", [NO_KERNELS, Kernels.of_processor()])
def test_a_product_with_held_weights(
    monkeypatch: pytest.MonkeyPatch,
    stored: StoredDtype,
    held: StoredDtype,
    compute: type,
    tokens: int,
    block_bytes: int,
    kernels: Kernels,
) -> None:
    monkeypatch.setattr(linear, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(linear, "_SHARED_BYTES_MIN", 0)
    rng = np.random.default_rng(0)
    values = rng.standard_normal((50, 24)).astype(np.float32)
    bits = narrow(values, F32, stored)
    weights = Linear(50, 24, held, compute, CREW, kernels)
    for start in range(0, 50, 20):
        weights.store(start, bits[start : start + 20], stored)
    assert weights.held_bytes == 50 * 24 * held.item_bytes
    exact = widened(narrow(bits, stored, held), held).astype(np.float64)
    x: Array = rng.standard_normal((tokens, 24)).astype(compute)
    found = weights(x)
    assert found.dtype == compute
    close(weights.reference(x), found, compute)
    close(found, x.astype(np.float64) @ exact.T, compute)
    picked = np.array([49, 0, 7, 7])
    np.testing.assert_array_equal(weights.rows(picked), exact[picked])
    assert weights.rows(picked).dtype == compute


@pytest.mark.parametrize("held", list(StoredDtype))
def test_few_rows_do_not_depend_on_threads_batch_or_instructions(held: StoredDtype) -> None:
    """Every row of a batch has the bytes that it has alone. (BLAS rounds by the whole product.)"""
    rng = np.random.default_rng(1)
    values = rng.standard_normal((4104, 512)).astype(np.float32)
    x = rng.standard_normal((32, 512)).astype(np.float32)
    made = [
        Linear(4104, 512, held, np.float32, Crew(threads), Kernels(instructions, many_rows=False))
        for threads in (1, 2, 3)
        for instructions in available()
    ]
    for weights in made:
        weights.store(0, narrow(values, F32, held), held)
    alone = np.concatenate([made[0](row[np.newaxis]) for row in x])
    for weights in made:
        for tokens in (1, 2, 8, 32):
            np.testing.assert_array_equal(weights(x[:tokens]), alone[:tokens])


def test_many_rows_do_not_depend_on_threads_or_batch() -> None:
    """On tile registers, where there are any."""
    rng = np.random.default_rng(2)
    values = rng.standard_normal((4104, 512)).astype(np.float32)
    x = rng.standard_normal((600, 512)).astype(np.float32)
    made = [Linear(4104, 512, BF16, np.float32, Crew(threads)) for threads in (1, 2, 3)]
    for weights in made:
        weights.store(0, narrow(values, F32, BF16), BF16)
    whole = made[0](x)
    for weights in made[: 3 * Kernels.of_processor().many_rows]:
        for tokens in (33, 256, 257, 600):
            np.testing.assert_array_equal(weights(x[-tokens:]), whole[-tokens:])


def test_held_types_have_the_sizes_of_stored_ones() -> None:
    for dtype in StoredDtype:
        assert HELD_NUMPY[dtype].itemsize == dtype.item_bytes
