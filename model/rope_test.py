from __future__ import annotations

import math

import numpy as np
import pytest

from model.rope import inverse_frequencies, rotary_table, rotate


def test_frequencies_divide_by_the_turned_channels() -> None:
    frequencies = inverse_frequencies(64, 1e7, np.float64)
    expected = [1e7 ** (-2 * i / 64) for i in range(32)]
    np.testing.assert_allclose(frequencies, expected, rtol=1e-14)
    assert frequencies.shape == (32,)


def test_float32_tables_round_every_step_to_float32() -> None:
    frequencies = inverse_frequencies(64, 1e7, np.float32)
    assert frequencies.dtype == np.float32
    cos, sin = rotary_table(np.array([0, 8191]), frequencies)
    assert cos.dtype == sin.dtype == np.float32
    angle = float(np.float32(8191) * frequencies[3])
    assert cos[1, 3] == np.float32(math.cos(angle))
    assert sin[1, 3] == np.float32(math.sin(angle))
    np.testing.assert_array_equal(cos[0], 1)
    np.testing.assert_array_equal(sin[0], 0)


def test_float32_and_float64_tables_differ_more_with_the_position() -> None:
    tables = [
        rotary_table(np.array([10, 262_000]), inverse_frequencies(64, 1e7, dtype))
        for dtype in (np.float32, np.float64)
    ]
    near, far = np.abs(tables[0][0] - tables[1][0]).max(axis=1)
    assert near < 1e-6 < 1e-3 < far


@pytest.mark.parametrize("rotary_dim", [2, 4, 8])
def test_halves_turn_and_the_rest_passes_through(rotary_dim: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((3, 2, 8))
    frequencies = inverse_frequencies(rotary_dim, 100.0, np.float64)
    positions = np.array([5, 6, 9])
    turned = rotate(x, *rotary_table(positions, frequencies))
    half = rotary_dim // 2
    for token, position in enumerate(positions):
        for i in range(half):
            angle = position * 100.0 ** (-2 * i / rotary_dim)
            pair = x[token, :, i] + 1j * x[token, :, i + half]
            expected = pair * complex(math.cos(angle), math.sin(angle))
            np.testing.assert_allclose(turned[token, :, i], expected.real)
            np.testing.assert_allclose(turned[token, :, i + half], expected.imag)
    np.testing.assert_array_equal(turned[:, :, rotary_dim:], x[:, :, rotary_dim:])


def test_a_product_depends_on_the_distance_of_positions_only() -> None:
    rng = np.random.default_rng(1)
    query, key = rng.standard_normal((2, 1, 1, 16))
    frequencies = inverse_frequencies(16, 1e4, np.float64)

    def product(at: int) -> float:
        table = rotary_table(np.array([at]), frequencies)
        other = rotary_table(np.array([at + 7]), frequencies)
        return float((rotate(query, *table) * rotate(key, *other)).sum())

    assert product(0) == pytest.approx(product(1000), abs=1e-11)
