from __future__ import annotations

import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest

from model import attention
from model.attention import ReadContext, causal_attention

F64 = npt.NDArray[np.float64]


def by_definition(query: F64, start: int, keys: F64, values: F64) -> F64:
    tokens, heads, head_dim = query.shape
    group = heads // len(keys)
    result = np.zeros_like(query)
    for t in range(tokens):
        for head in range(heads):
            seen = start + t + 1
            scores = keys[head // group, :seen] @ query[t, head] / np.sqrt(head_dim)
            weights = np.exp(scores - scores.max())
            result[t, head] = weights @ values[head // group, :seen] / weights.sum()
    return result


def reader(keys: F64, values: F64, most: int | None = None) -> ReadContext:
    def read(start: int, stop: int) -> tuple[F64, F64]:
        assert 0 <= start < stop <= keys.shape[1]
        assert most is None or stop - start <= most
        return keys[:, start:stop], values[:, start:stop]

    return read


@pytest.mark.parametrize("blocks", [(1, 1), (2, 3), (4, 8), (128, 512)])
@pytest.mark.parametrize(("heads", "kv_heads"), [(1, 1), (4, 2), (6, 2), (4, 1), (4, 4)])
@pytest.mark.parametrize(("start", "tokens"), [(0, 1), (0, 9), (5, 1), (7, 6), (16, 3)])
def test_any_blocks_give_the_definition(
    monkeypatch: pytest.MonkeyPatch,
    blocks: tuple[int, int],
    heads: int,
    kv_heads: int,
    start: int,
    tokens: int,
) -> None:
    monkeypatch.setattr(attention, "QUERY_BLOCK_TOKENS", blocks[0])
    monkeypatch.setattr(attention, "CONTEXT_BLOCK_TOKENS", blocks[1])
    rng = np.random.default_rng(0)
    query = rng.standard_normal((tokens, heads, 4))
    keys, values = rng.standard_normal((2, kv_heads, start + tokens, 4))
    found = causal_attention(query, start, reader(keys, values, blocks[1]))
    np.testing.assert_allclose(found, by_definition(query, start, keys, values), atol=1e-13)


def test_large_scores_do_not_overflow() -> None:
    rng = np.random.default_rng(1)
    query = (1e4 * rng.standard_normal((3, 1, 4))).astype(np.float32)
    keys, values = (1e4 * rng.standard_normal((2, 1, 1200, 4))).astype(np.float32)
    with np.errstate(over="raise", invalid="raise"):
        found = causal_attention(query, 1197, reader(keys, values))
    expected = by_definition(query.astype(np.float64), 1197, keys, values)
    np.testing.assert_allclose(found, expected, rtol=1e-3)


def test_what_lies_beyond_a_position_is_never_used() -> None:
    rng = np.random.default_rng(2)
    query = rng.standard_normal((4, 2, 4))
    keys, values = rng.standard_normal((2, 1, 12, 4))
    expected = causal_attention(query, 8, reader(keys, values))
    for t in range(4):
        changed_keys, changed_values = keys.copy(), values.copy()
        changed_keys[:, 8 + t + 1 :] = 1e6
        changed_values[:, 8 + t + 1 :] = 1e6
        found = causal_attention(query, 8, reader(changed_keys, changed_values))
        np.testing.assert_allclose(found[: t + 1], expected[: t + 1], atol=1e-13)


def test_memory_is_bounded_by_the_blocks() -> None:
    """A context of 20,000 tokens under 300 queries: all scores at once would be 96 MB."""
    rng = np.random.default_rng(3)
    query = rng.standard_normal((300, 2, 4)).astype(np.float64)
    keys, values = rng.standard_normal((2, 1, 20_000, 4))
    tracemalloc.start()
    try:
        causal_attention(query, 19_700, reader(keys, values))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    scores = attention.QUERY_BLOCK_TOKENS * 2 * attention.CONTEXT_BLOCK_TOKENS * 8
    assert peak < 4 * scores
