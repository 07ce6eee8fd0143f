"""Partial rotary position embedding: tables in the compute dtype, as transformers computes them.

The published models run with float32 frequencies and angles whatever their own dtype, and beyond
toy lengths that is visible: float64 tables move a logit by 1.4e-6 of its deviation at position
4,097, 6e-5 at 262,000. So float32 arithmetic uses float32 tables, each step rounded to float32; the
float64 diagnostic mode uses float64 throughout. Powers, cosines and sines are taken in float64 and
rounded, which gives the same float32 value on every CPU.
Source: Su et al., RoFormer (arXiv:2104.09864); `Qwen3_5TextRotaryEmbedding`. For text the three
position axes of the multimodal rotary embedding are equal, so it is the plain one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from model.ops import Array


def inverse_frequencies(rotary_dim: int, theta: float, dtype: npt.DTypeLike) -> Array:
    """theta^(-2i / rotary_dim) for i = 0 .. rotary_dim/2 - 1, in `dtype`: [rotary_dim / 2].

    The denominator is the number of turned channels, not head_dim.
    """
    exponents = np.arange(0, rotary_dim, 2).astype(dtype) / np.dtype(dtype).type(rotary_dim)
    powers = np.power(np.float64(theta), exponents.astype(np.float64)).astype(dtype)
    result: Array = np.reciprocal(powers)
    return result


def rotary_table(positions: npt.NDArray[np.int64], frequencies: Array) -> tuple[Array, Array]:
    """(cos, sin) of position * frequency: each [tokens, rotary_dim / 2], dtype as frequencies.

    positions: [tokens], absolute and 0-based over the whole request, not over a chunk.
    """
    dtype = frequencies.dtype
    angles = (positions.astype(dtype)[:, None] * frequencies[None, :]).astype(np.float64)
    return np.cos(angles).astype(dtype), np.sin(angles).astype(dtype)


def rotate(x: Array, cos: Array, sin: Array) -> Array:
    """Turn the leading rotary_dim channels of every head; the others pass through.

    x: [tokens, heads, head_dim]; cos, sin: [tokens, rotary_dim / 2]. Channel i is paired with
    channel i + rotary_dim / 2 (halves, not neighbours; `rotate_half`).
    """
    half = cos.shape[-1]
    cos, sin = cos[:, None, :], sin[:, None, :]
    first, second = x[..., :half], x[..., half : 2 * half]
    result = x.copy()
    result[..., :half] = first * cos - second * sin
    result[..., half : 2 * half] = second * cos + first * sin
    return result
