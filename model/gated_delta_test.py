from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model import gated_delta
from model.gated_delta import (
    BLOCK_TOKENS,
    causal_convolution,
    gated_delta_chunk,
    gated_delta_step,
    log_decay,
    unit_lower_inverse,
)
from model.ops import Array, l2_norm


def pieces_of(total: int, cuts: list[int]) -> list[slice]:
    edges = [0, *sorted({min(c, total) for c in cuts}), total]
    return [slice(a, b) for a, b in pairwise(edges) if a < b]


# --- convolution ------------------------------------------------------------------------------


def convolution_by_definition(inputs: Array, weight: Array) -> Array:
    tokens, (channels, kernel) = len(inputs), weight.shape
    result = np.zeros((tokens, channels))
    for t in range(tokens):
        for c in range(channels):
            total = 0.0
            for j in range(kernel):
                if t - kernel + 1 + j >= 0:
                    total += weight[c, j] * inputs[t - kernel + 1 + j, c]
            result[t, c] = total / (1 + math.exp(-total))
    return result


@given(
    kernel=st.integers(2, 5),
    tokens=st.integers(1, 12),
    cuts=st.lists(st.integers(1, 12)),
    seed=st.integers(0, 9),
)
def test_convolution_in_any_pieces_is_its_definition(
    kernel: int, tokens: int, cuts: list[int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    inputs, weight = rng.standard_normal((tokens, 3)), rng.standard_normal((3, kernel))
    state: Array = np.zeros((3, kernel - 1))
    parts = []
    for piece in pieces_of(tokens, cuts):
        before = state.copy()
        output, new_state = causal_convolution(inputs[piece], state, weight)
        np.testing.assert_array_equal(state, before)
        state = new_state
        parts.append(output)
    np.testing.assert_allclose(
        np.concatenate(parts), convolution_by_definition(inputs, weight), atol=1e-12
    )
    seen = np.concatenate([np.zeros((kernel - 1, 3)), inputs])
    np.testing.assert_array_equal(state, seen[-(kernel - 1) :].T)


# --- gated delta rule -------------------------------------------------------------------------


def random_inputs(
    rng: np.random.Generator, tokens: int, shape: tuple[int, int, int, int], decay: float
) -> tuple[Array, Array, Array, Array, Array]:
    """query, key, value, g, beta; decay scales -g."""
    key_heads, ratio, key_dim, value_dim = shape
    value_heads = key_heads * ratio
    query = l2_norm(rng.standard_normal((tokens, key_heads, key_dim))) * key_dim**-0.5
    key = l2_norm(rng.standard_normal((tokens, key_heads, key_dim)))
    value = rng.standard_normal((tokens, value_heads, value_dim))
    g = -decay * rng.random((tokens, value_heads))
    beta = rng.random((tokens, value_heads))
    return query, key, value, g, beta


def by_definition(
    query: Array, key: Array, value: Array, g: Array, beta: Array, state: Array
) -> tuple[Array, Array]:
    """The recurrence of one head at a time, in plain loops over heads and tokens."""
    tokens, value_heads, _ = value.shape
    ratio = value_heads // key.shape[1]
    output, state = np.zeros_like(value), state.copy()
    for head in range(value_heads):
        for t in range(tokens):
            k, q, v = key[t, head // ratio], query[t, head // ratio], value[t, head]
            state[head] *= math.exp(g[t, head])
            state[head] += np.outer(k, beta[t, head] * (v - state[head].T @ k))
            output[t, head] = state[head].T @ q
    return output, state


SHAPES = [(1, 1, 4, 4), (2, 2, 3, 5), (2, 3, 6, 2), (4, 1, 2, 3)]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_step_is_its_definition(shape: tuple[int, int, int, int]) -> None:
    rng = np.random.default_rng(0)
    inputs = random_inputs(rng, 20, shape, 1.0)
    state = rng.standard_normal((shape[0] * shape[1], shape[2], shape[3]))
    expected, final = by_definition(*inputs, state)
    for t in range(20):
        query, key, value, g, beta = (array[t] for array in inputs)
        found = gated_delta_step(query, key, value, np.exp(g), beta, state)
        np.testing.assert_allclose(found, expected[t], atol=1e-12)
    np.testing.assert_allclose(state, final, atol=1e-12)


@settings(deadline=None)
@given(
    shape=st.sampled_from(SHAPES),
    tokens=st.integers(1, 2 * BLOCK_TOKENS + 3),
    cuts=st.lists(st.integers(1, 130), max_size=3),
    decay=st.sampled_from([0.0, 0.1, 5.0, 1000.0]),
    seed=st.integers(0, 3),
)
def test_blocks_in_any_pieces_are_the_definition(
    shape: tuple[int, int, int, int], tokens: int, cuts: list[int], decay: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    inputs = random_inputs(rng, tokens, shape, decay)
    state = rng.standard_normal((shape[0] * shape[1], shape[2], shape[3]))
    expected, final = by_definition(*inputs, state)
    parts = []
    for piece in pieces_of(tokens, cuts):
        query, key, value, g, beta = (array[piece] for array in inputs)
        parts.append(gated_delta_chunk(query, key, value, g, beta, state))
    np.testing.assert_allclose(np.concatenate(parts), expected, atol=1e-11)
    np.testing.assert_allclose(state, final, atol=1e-11)


@pytest.mark.parametrize("decay", [1.0, 1e3, 1e6])
def test_heads_that_forget_fast_stay_finite_in_float32(decay: float) -> None:
    rng = np.random.default_rng(2)
    wide = random_inputs(rng, 100, (2, 2, 8, 8), decay)
    query, key, value, g, beta = (array.astype(np.float32) for array in wide)
    state = np.zeros((4, 8, 8), np.float32)
    with np.errstate(over="raise", invalid="raise"):
        found = gated_delta_chunk(query, key, value, g, beta, state)
    expected, final = by_definition(*wide, np.zeros((4, 8, 8)))
    np.testing.assert_allclose(found, expected, atol=2e-5)
    np.testing.assert_allclose(state, final, atol=2e-5)


def test_a_ratio_of_exponents_is_caught_by_such_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    def ratio(total: Array) -> Array:
        result: Array = np.tril(np.exp(total)[..., :, None] * np.exp(-total)[..., None, :])
        return result

    monkeypatch.setattr(gated_delta, "decay_ratio", ratio)
    inputs = random_inputs(np.random.default_rng(2), 100, (2, 2, 8, 8), 1e3)
    with np.errstate(all="ignore"):
        found = gated_delta_chunk(*inputs, np.zeros((4, 8, 8)))
    assert not np.isfinite(found).all()


def test_equal_keys_without_decay_are_exact() -> None:
    """The worst case for an inverse by powers: they reach 1e18 where the inverse holds 0 and 1."""
    tokens = BLOCK_TOKENS
    key = np.zeros((tokens, 1, 4), np.float32)
    key[:, 0, 0] = 1
    value = np.arange(tokens, dtype=np.float32).reshape(-1, 1, 1)
    state = np.zeros((1, 4, 1), np.float32)
    ones, zeros = np.ones((tokens, 1), np.float32), np.zeros((tokens, 1), np.float32)
    output = gated_delta_chunk(key, key, value, zeros, ones, state)
    np.testing.assert_array_equal(output, value)
    assert state[0, 0, 0] == tokens - 1


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 17, 64])
def test_unit_lower_inverse(size: int) -> None:
    strict = np.tril(np.random.default_rng(size).uniform(-1, 1, (2, 3, size, size)), -1)
    before = strict.copy()
    inverse = unit_lower_inverse(strict)
    np.testing.assert_array_equal(strict, before)
    identity = np.broadcast_to(np.eye(size), strict.shape)
    np.testing.assert_allclose(
        np.matmul(np.eye(size) + strict, inverse), identity, atol=1e-9 * np.abs(inverse).max()
    )
    assert not np.triu(inverse, 1).any()


def test_log_decay() -> None:
    a = np.array([[-100.0, 0.0, 3.0]])
    rate, bias = np.array([1.0, 2.0, 0.5]), np.array([0.0, 1.0, -3.0])
    expected = [-math.exp(-100), -2 * math.log(1 + math.e), -0.5 * math.log(2)]
    np.testing.assert_allclose(log_decay(a, rate, bias)[0], expected)
