"""Grouped-query attention of one request over its cached keys and values, block by block.

Memory is bounded by the two block sizes, never by the context: scores exist for one block of
queries against one block of the context at a time (online softmax).
Source: Milakov and Gimelshein, Online normalizer calculation for softmax (arXiv:1805.02867);
Ainslie et al., GQA (arXiv:2305.13245). Query head h reads key-value head h // (heads / kv_heads).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from model.ops import Array

QUERY_BLOCK_TOKENS: Final = 128
CONTEXT_BLOCK_TOKENS: Final = 512

# (start, stop) in token positions -> keys, values: each [kv_heads, stop - start, head_dim].
ReadContext = Callable[[int, int], tuple[Array, Array]]


def causal_attention(query: Array, start_position: int, read: ReadContext) -> Array:
    """softmax(q k^T / sqrt(head_dim) + causal mask) v: [tokens, heads, head_dim].

    query: [tokens, heads, head_dim] at positions start_position and onwards, normed and rotated.
    read: the cached context, which already holds the keys and values of these tokens.
    """
    output = np.empty_like(query)
    for first in range(0, len(query), QUERY_BLOCK_TOKENS):
        block = query[first : first + QUERY_BLOCK_TOKENS]
        output[first : first + len(block)] = _query_block(block, start_position + first, read)
    return output


def _query_block(query: Array, start_position: int, read: ReadContext) -> Array:
    """Attention of a few consecutive tokens over everything up to and including each of them.

    After each block of the context: peak is the largest score so far, weight the sum of
    exp(score - peak), output the sum of exp(score - peak) v. All [kv_heads, group * tokens, ...].
    """
    tokens, heads, head_dim = query.shape
    stop_position = start_position + tokens
    scaled = (query * query.dtype.type(head_dim**-0.5)).transpose(1, 0, 2)
    peak = weight = output = np.empty(0, query.dtype)
    for start in range(0, stop_position, CONTEXT_BLOCK_TOKENS):
        stop = min(start + CONTEXT_BLOCK_TOKENS, stop_position)
        keys, values = read(start, stop)
        grouped = scaled.reshape(len(keys), -1, head_dim)
        scores = np.matmul(grouped, keys.swapaxes(1, 2))
        if stop > start_position + 1:
            _mask_future(scores.reshape(heads, tokens, stop - start), start_position - start)
        new_peak = scores.max(axis=-1, keepdims=True)
        if start:
            np.maximum(new_peak, peak, out=new_peak)
        scores -= new_peak
        np.exp(scores, out=scores)
        new_weight = scores.sum(axis=-1, keepdims=True)
        new_output = np.matmul(scores, values)
        if start:
            shrink = np.exp(peak - new_peak)
            new_weight += shrink * weight
            new_output += shrink * output
        peak, weight, output = new_peak, new_weight, new_output
    output /= weight
    return output.reshape(heads, tokens, head_dim).transpose(1, 0, 2)


def _mask_future(scores: Array, offset: int) -> None:
    """-inf where a key is later than the query. scores: [heads, tokens, context], in place.

    offset: position of the first query minus that of the first key; query t sees key c when
    c <= t + offset.
    """
    tokens, context = scores.shape[-2:]
    visible = np.tri(tokens, context, offset, dtype=bool)
    np.copyto(scores, -np.inf, where=~visible)
