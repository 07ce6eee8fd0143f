from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.ops import Array, gated_rms_norm, l2_norm, rms_norm, sigmoid, silu, softplus

finite = st.floats(-1e4, 1e4)


def exact_sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_activations_keep_the_dtype_and_never_overflow(dtype: type) -> None:
    x: Array = np.array([-1e4, -800, -100, -88, -20, -1, 0, 1, 20, 100, 1e4], dtype)
    with np.errstate(all="raise", under="ignore"):
        for operation in (sigmoid, silu, softplus):
            result = operation(x)
            assert result.dtype == dtype
            assert np.isfinite(result).all()


@given(x=finite)
def test_activations_are_their_formulas(x: float) -> None:
    value = np.array([x])
    expected = exact_sigmoid(max(x, -80))
    assert sigmoid(value)[0] == pytest.approx(expected, rel=1e-14, abs=1e-34)
    assert silu(value)[0] == pytest.approx(x * expected, rel=1e-14, abs=1e-30)
    assert softplus(value)[0] == pytest.approx(max(x, 0) + math.log1p(math.exp(-abs(x))), rel=1e-14)


def test_the_arguments_are_not_written() -> None:
    rng = np.random.default_rng(0)
    x, gate, weight = rng.standard_normal((3, 4, 5))
    before = x.copy()
    for result in (
        sigmoid(x),
        silu(x),
        softplus(x),
        rms_norm(x, weight[0], 1e-6),
        gated_rms_norm(x, gate, weight[0], 1e-6),
        l2_norm(x),
    ):
        assert not np.shares_memory(result, x)
    np.testing.assert_array_equal(x, before)


def test_norms() -> None:
    x = np.array([[3.0, 4.0]])
    scale = np.array([2.0, 0.5])
    root = math.sqrt(12.5 + 0.01)
    np.testing.assert_allclose(rms_norm(x, scale, 0.01), [[6 / root, 2 / root]])
    gate = np.array([[10.0, -1.0]])
    np.testing.assert_allclose(gated_rms_norm(x, gate, scale, 0.01), [[60 / root, -2 / root]])
    np.testing.assert_allclose(l2_norm(x, 0.5), x / math.sqrt(25.5))


def test_the_eps_of_l2norm_is_on_the_sum_and_fixed() -> None:
    tiny = np.full((1, 100), 1e-5)
    np.testing.assert_allclose(l2_norm(tiny), tiny / math.sqrt(100 * 1e-10 + 1e-6))


def test_a_row_of_zeros_stays_zero() -> None:
    zeros = np.zeros((2, 3), np.float32)
    assert not l2_norm(zeros).any()
    assert not rms_norm(zeros, np.ones(3, np.float32), 1e-6).any()
