"""Element-wise operations and norms of Qwen3.5, on float32 or float64 arrays.

Each keeps the dtype it is given. Nothing here knows tensor parallelism, requests or files.
Formulas: transformers `models/qwen3_5/modeling_qwen3_5.py`; the specific function is named.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]

# exp(88) is finite in float32 and sigmoid(-88) is 0 to within 1e-38: no overflow, no difference.
_EXPONENT_MAX = 88.0


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)), element by element."""
    result = np.negative(x)
    np.minimum(result, x.dtype.type(_EXPONENT_MAX), out=result)
    np.exp(result, out=result)
    result += 1
    return np.reciprocal(result, out=result)


def silu(x: Array) -> Array:
    """x * sigmoid(x), element by element (`hidden_act` silu)."""
    result = sigmoid(x)
    result *= x
    return result


def softplus(x: Array) -> Array:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), which never overflows."""
    result: Array = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return result


def rms_norm(x: Array, scale: Array, eps: float) -> Array:
    """x / sqrt(mean(x^2) + eps) * scale over the last axis.

    x: [..., size]; scale: [size]. scale is 1 + weight for input, post-attention, final, query and
    key norms (`Qwen3_5RMSNorm`), and weight itself for the gated norm (`Qwen3_5RMSNormGated`).
    Source: Zhang and Sennrich, Root Mean Square Layer Normalization (arXiv:1910.07467).
    """
    mean_square = np.add.reduce(np.square(x), axis=-1, keepdims=True)
    mean_square /= x.shape[-1]
    result: Array = x / np.sqrt(mean_square + x.dtype.type(eps))
    result *= scale
    return result


def gated_rms_norm(x: Array, gate: Array, weight: Array, eps: float) -> Array:
    """rms_norm(x; weight) * gate: normalise, weigh, then gate (`Qwen3_5RMSNormGated`).

    x, gate: [tokens, heads, value_dim]; gate is already activated; weight: [value_dim].
    """
    result = rms_norm(x, weight, eps)
    result *= gate
    return result


def l2_norm(x: Array, eps: float = 1e-6) -> Array:
    """x / sqrt(sum(x^2) + eps) over the last axis; eps is on the sum and fixed (`l2norm`)."""
    sum_square = np.add.reduce(np.square(x), axis=-1, keepdims=True)
    result: Array = x / np.sqrt(sum_square + x.dtype.type(eps))
    return result
