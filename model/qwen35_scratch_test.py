"""What a step allocates stays below what the capacity plan sets aside for it."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from model import attention, many_rows, qwen35
from model.lockstep import Lockstep, open_ranks
from program import qwen35_memory
from program.plan import Admit, Row, Score, StepPlan
from program.qwen35 import Variant, local_dimensions
from program.qwen35_memory import WeightsDtype, scratch_bytes
from program.spec import Dtype
from testdata.golden.seeded_checkpoint import write_checkpoint
from testdata.golden.shapes import BASE

# Each makes one sublayer, or the logits, by far the largest.
WIDE = {
    "attention": replace(
        BASE, pattern="F", heads=64, kv_heads=16, head_dim=64, intermediate=64, vocab=64
    ),
    "linear attention": replace(
        BASE, pattern="L", key_heads=16, value_heads=48, key_dim=64, value_dim=64, vocab=64
    ),
    "mlp": replace(BASE, pattern="F", intermediate=4096, vocab=64),
    "logits": replace(BASE, pattern="F", vocab=60_000),
}


def step_peak(ranks: Lockstep, tokens: int) -> int:
    """Most bytes that were allocated at once during a prefill of `tokens` scored tokens."""
    pages = tuple(range(0, 2 * -(-tokens // 16), 2))  # no two adjacent: the context is gathered
    admit = Admit(0, 7, 1, pages, tokens, tokens, None)
    row = Row(7, 0, 0, (1,) * tokens, Score(min(tokens, 40), 5))
    tracemalloc.start()
    try:
        ranks.step(StepPlan(0, admissions=(admit,), rows=(row,)))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("compute", "held"),
    [
        (Dtype.FLOAT64, WeightsDtype.AUTO),
        (Dtype.FLOAT32, WeightsDtype.AUTO),
        (Dtype.FLOAT32, WeightsDtype.BFLOAT16),
    ],
)
@pytest.mark.parametrize("name", WIDE)
def test_a_step_stays_inside_its_scratch(
    tmp_path: Path, name: str, compute: Dtype, held: WeightsDtype
) -> None:
    write_checkpoint(tmp_path, WIDE[name], 1)
    for tokens in (1, 64, 700):
        ranks = open_ranks(
            tmp_path, Variant.SHARDED, 1, compute=compute, weights_dtype=held, pages=100
        )
        local = local_dimensions(ranks.config, Variant.SHARDED, 1)
        limit = scratch_bytes(ranks.config, local, tokens, compute)
        assert step_peak(ranks, tokens) <= limit


def test_the_plan_knows_the_executor_s_blocks() -> None:
    assert qwen35_memory._QUERY_TOKENS == attention.QUERY_BLOCK_TOKENS
    assert qwen35_memory._CONTEXT_TOKENS == attention.CONTEXT_BLOCK_TOKENS
    assert qwen35_memory._LOGIT_ROWS == qwen35.LOGIT_ROWS
    assert qwen35_memory._CUT_ROWS == many_rows.ROWS_MAX
    assert qwen35_memory._CUT_PANEL == many_rows.PANEL
