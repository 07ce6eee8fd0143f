"""Linear attention of Qwen3.5: causal depthwise convolution and the gated delta rule.

Both carry state from piece to piece, so any cut of a request into pieces gives the same result.
`gated_delta_step` is one token at a time and the reference; `gated_delta_chunk` is the blocked form
for prefill. Value head j reads key head j // (value_heads / key_heads). Array axes: key heads and
value heads are those of one rank.
Source: Yang, Kautz, Hatamizadeh, Gated Delta Networks (arXiv:2412.06464); transformers
`torch_recurrent_gated_delta_rule` and `torch_chunk_gated_delta_rule`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from model.ops import Array, silu, softplus

# Tokens per block of the blocked form, as in transformers; any number gives the same values.
BLOCK_TOKENS: Final = 64
# Tokens that the convolution takes at once, so that what it reads four times stays in the cache.
CONVOLUTION_TOKENS: Final = 16
# exp(-60) = 9e-27: beside values of order one nothing of it is left, in float64 either, but it
# would lead to denormal numbers, on which processors are a hundred times slower.
_FORGOTTEN: Final = -60.0
# Bytes of state that one token's update takes at once, for the same reason.
_STATE_BYTES: Final = 512 << 10


def causal_convolution(inputs: Array, state: Array, weight: Array) -> tuple[Array, Array]:
    """Depthwise causal convolution, then SiLU: (output [tokens, channels], new state).

    inputs: [tokens, channels]; weight: [channels, kernel], whose last column meets the newest
    token. state: [channels, kernel - 1], the inputs before this piece, oldest first, zeros where
    the request had not begun; the new state is the last kernel - 1 inputs, whatever the piece's
    length. Neither `inputs` nor `state` is written.
    """
    tokens, (channels, kernel) = inputs.shape[0], weight.shape
    window = np.empty((kernel - 1 + tokens, channels), inputs.dtype)
    window[: kernel - 1] = state.T
    window[kernel - 1 :] = inputs
    taps = np.ascontiguousarray(weight.T)
    output = np.empty_like(inputs)
    for first in range(0, tokens, CONVOLUTION_TOKENS):
        last = min(first + CONVOLUTION_TOKENS, tokens)
        total = window[first:last] * taps[0]
        for tap in range(1, kernel):
            total += window[first + tap : last + tap] * taps[tap]
        output[first:last] = silu(total)
    return output, window[tokens:].T


def log_decay(a: Array, rate: Array, dt_bias: Array) -> Array:
    """g = -exp(A_log) * softplus(a + dt_bias) <= 0: [tokens, value_heads].

    a: [tokens, value_heads]; rate: exp(A_log) [value_heads]; dt_bias: [value_heads].
    """
    result: Array = -rate * softplus(a + dt_bias)
    return result


def decay_of(log: Array) -> Array:
    """exp(log) for log <= 0, and exactly 0 where nothing is left of what it decays."""
    result: Array = np.exp(np.where(log > _FORGOTTEN, log, -np.inf))
    return result


def gated_delta_step(
    query: Array, key: Array, value: Array, decay: Array, beta: Array, state: Array
) -> Array:
    """One token of the gated delta rule; returns the output [value_heads, value_dim].

    query, key: [key_heads, key_dim], normalised and scaled; value: [value_heads, value_dim];
    decay: exp(g) and beta: [value_heads]; state: [value_heads, key_dim, value_dim], updated in
    place. Per value head: S = decay S; S = S + key (beta (value - S^T key))^T; output = S^T query.
    Written out so that the state is read once for both products and written once:
    change = beta (value - decay S^T key); output = decay S^T query + (query . key) change.
    """
    key_heads, (_, key_dim, value_dim) = len(key), state.shape
    shared = (key_heads, len(state) // key_heads)
    states = state.reshape(*shared, key_dim, value_dim)  # a view: `state` is contiguous
    values = value.reshape(*shared, value_dim)
    decays, betas = decay.reshape(*shared, 1), beta.reshape(*shared, 1)
    pairs = np.empty((key_heads, 1, 2, key_dim), key.dtype)
    pairs[:, 0, 0], pairs[:, 0, 1] = key, query
    alignment = (key * query).sum(axis=1)[:, None, None]
    output = np.empty_like(values)
    group = max(1, _STATE_BYTES // states[0].nbytes)
    for first in range(0, key_heads, group):
        heads = slice(first, first + group)
        held = states[heads]
        recalled = np.matmul(pairs[heads], held)
        recalled *= decays[heads][..., None]
        change = betas[heads] * (values[heads] - recalled[..., 0, :])
        output[heads] = recalled[..., 1, :] + alignment[heads] * change
        held *= decays[heads][..., None]
        held += key[heads, None, :, None] * change[..., None, :]
    return output.reshape(len(state), value_dim)


def gated_delta_chunk(
    query: Array, key: Array, value: Array, g: Array, beta: Array, state: Array
) -> Array:
    """Any number of tokens, block by block; returns [tokens, value_heads, value_dim].

    query, key: [tokens, key_heads, key_dim]; value: [tokens, value_heads, value_dim]; g (log of
    the decay), beta: [tokens, value_heads]; state as in `gated_delta_step`, updated in place.
    """
    output = np.empty_like(value)
    for start in range(0, len(value), BLOCK_TOKENS):
        block = slice(start, start + BLOCK_TOKENS)
        output[block] = _block(query[block], key[block], value[block], g[block], beta[block], state)
    return output


def _block(query: Array, key: Array, value: Array, g: Array, beta: Array, state: Array) -> Array:
    """One block. With G = cumsum(g), D_ij = exp(G_i - G_j) for j <= i else 0, per value head:

    (I + L) U = beta (V - exp(G) K S),  L_ij = beta_i (k_i . k_j) D_ij for j < i
    O = exp(G) Q S + ((Q K^T) D) U;     S' = exp(G_last) S + K^T (exp(G_last - G) U)

    Exponents are subtracted before exp: exp(G_i) exp(-G_j) overflows for heads that forget fast.
    The key heads' axis comes first, the value heads that share a key head second.
    """
    tokens, key_heads, key_dim = key.shape
    value_heads, value_dim = value.shape[1:]
    shared = (key_heads, value_heads // key_heads)
    queries = np.ascontiguousarray(query.transpose(1, 0, 2))[:, None]
    keys = np.ascontiguousarray(key.transpose(1, 0, 2))[:, None]
    values = value.transpose(1, 0, 2).reshape(*shared, tokens, value_dim)
    betas = beta.T.reshape(*shared, tokens, 1)
    total = np.cumsum(g, axis=0).T.reshape(*shared, tokens)
    states = state.reshape(*shared, key_dim, value_dim)  # a view: `state` is contiguous

    ratio = decay_ratio(total)
    keys_transposed = keys.swapaxes(-1, -2)
    coupling = np.matmul(keys, keys_transposed) * ratio
    coupling *= betas
    grown = decay_of(total)[..., None]
    wanted = betas * (values - grown * np.matmul(keys, states))
    updates = np.matmul(unit_lower_inverse(np.tril(coupling, -1)), wanted)
    output = grown * np.matmul(queries, states)
    output += np.matmul(np.matmul(queries, keys_transposed) * ratio, updates)
    states *= grown[..., -1:, :]
    states += np.matmul(keys_transposed, ratio[..., -1, :, None] * updates)
    result: Array = output.reshape(value_heads, tokens, value_dim).transpose(1, 0, 2)
    return result


def decay_ratio(total: Array) -> Array:
    """D_ij = exp(G_i - G_j) for j <= i, else 0: [..., tokens, tokens] of G [..., tokens]."""
    difference = total[..., :, None] - total[..., None, :]
    difference[..., ~np.tri(total.shape[-1], dtype=bool)] = -np.inf
    return decay_of(difference)


def unit_lower_inverse(strict: Array) -> Array:
    """(I + strict)^-1 for strictly lower triangular `strict` [..., size, size].

    Two inverted diagonal blocks X1, X2 of I + strict and the block M below X1 give the block
    -X2 M X1 of the inverse; doubling the size from 1 needs log2(size) rounds of small products.
    No power of `strict` is formed: those grow without bound where the inverse does not.
    """
    *batch, size, _ = strict.shape
    padded = 1 << max(0, size - 1).bit_length()
    matrix = np.zeros((*batch, padded, padded), strict.dtype)
    matrix[..., :size, :size] = strict
    inverse = np.zeros_like(matrix)
    diagonal = np.arange(padded)
    inverse[..., diagonal, diagonal] = 1
    half = 1
    while half < padded:
        first = _diagonal_blocks(inverse, 0, 0, half)
        second = _diagonal_blocks(inverse, half, half, half)
        below = _diagonal_blocks(matrix, half, 0, half)
        target = _diagonal_blocks(inverse, half, 0, half)
        np.negative(np.matmul(np.matmul(second, below), first), out=target)
        half *= 2
    return inverse[..., :size, :size]


def _diagonal_blocks(matrix: Array, row: int, column: int, size: int) -> Array:
    """A writable view [..., n, size, size]: the block at (row, column) of each 2 size square."""
    *batch, extent, _ = matrix.shape
    *outer, down, right = matrix.strides
    corner = matrix[..., row:, column:]
    return np.lib.stride_tricks.as_strided(
        corner,
        shape=(*batch, extent // (2 * size), size, size),
        strides=(*outer, 2 * size * (down + right), down, right),
    )
