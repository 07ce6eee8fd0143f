"""How a rank holds the weights of Qwen3.5, decided before anything loads.

The loader and the capacity plan both take the answer from here, so what is advertised is what is
held. Matrices stay in the checkpoint's element type by default and are widened block by block in
front of a product; vectors and convolutions, 0.01 % of the bytes, are held as they are computed
with. It must not know arrays or files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final

from program.checkpoint import Checkpoint, StoredDtype
from program.qwen35 import EMBEDDING, HEAD, LayerType, LocalDimensions, Qwen35Config
from program.spec import Dtype, ProgramSpec


class WeightsDtype(Enum):
    """The option --weights-dtype: as stored, widened at load, or rounded to bfloat16 at load."""

    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"


# A product's input rows are shared by the members of a group, so their rows are held as one matrix.
ATTENTION_INPUTS: Final = ("q_proj", "k_proj", "v_proj")
LINEAR_ATTENTION_INPUTS: Final = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
MLP_INPUTS: Final = ("gate_proj", "up_proj")

# Hidden rows that exist at once: the residual, its norm, a partial, a total, and frames of both.
_HIDDEN_COPIES: Final = 6
# Tokens of a block of queries and of a block of context (model/attention.py).
_QUERY_TOKENS: Final = 128
_CONTEXT_TOKENS: Final = 512
# As many as model/qwen35.py computes at once, in the element type, binary64 and as sort keys.
_LOGIT_ROWS: Final = 16
_LOGIT_ITEM_BYTES: Final = 24
# Rows of a product's input that are cut into three parts of two bytes at once, panel by panel
# (model/many_rows.py).
_CUT_ROWS: Final = 256
_CUT_PANEL: Final = 32
_CUT_ITEM_BYTES: Final = 6
# Widened weights of a few threads, blocks of the delta rule and BLAS's own buffers.
_FIXED_BLOCKS_BYTES: Final = 32 << 20


def matrix_groups(config: Qwen35Config) -> Iterator[tuple[str, ...]]:
    """Names of the weights that are held together as one matrix, in the order the layers run."""
    yield (EMBEDDING,)
    for layer, kind in enumerate(config.layer_types):
        prefix = f"layers.{layer}."
        if kind is LayerType.FULL:
            yield tuple(f"{prefix}self_attn.{name}.weight" for name in ATTENTION_INPUTS)
            yield (f"{prefix}self_attn.o_proj.weight",)
        else:
            yield tuple(f"{prefix}linear_attn.{name}.weight" for name in LINEAR_ATTENTION_INPUTS)
            yield (f"{prefix}linear_attn.out_proj.weight",)
        yield tuple(f"{prefix}mlp.{name}.weight" for name in MLP_INPUTS)
        yield (f"{prefix}mlp.down_proj.weight",)
    if not config.tie_word_embeddings:
        yield (HEAD,)


def held_dtypes(
    config: Qwen35Config, checkpoint: Checkpoint, choice: WeightsDtype
) -> dict[str, StoredDtype]:
    """Element type in which each matrix is held, by weight name.

    AUTO: as stored; a group stored in several types is held in float32, which holds them all.
    """
    held: dict[str, StoredDtype] = {}
    for names in matrix_groups(config):
        stored = {checkpoint.tensors[name].dtype for name in names}
        if choice is WeightsDtype.BFLOAT16:
            dtype = StoredDtype.BFLOAT16
        elif choice is WeightsDtype.AUTO and len(stored) == 1:
            (dtype,) = stored
        else:
            dtype = StoredDtype.FLOAT32
        held.update(dict.fromkeys(names, dtype))
    return held


def held_item_bytes(program: ProgramSpec, held: Mapping[str, StoredDtype]) -> dict[str, int]:
    """Bytes per element as held, for every weight of the program (program/capacity.py)."""
    return {
        weight.name: held[weight.name].item_bytes
        if weight.name in held
        else program.partial_dtype.item_bytes
        for weight in program.weights
    }


def scratch_bytes(
    config: Qwen35Config, local: LocalDimensions, step_tokens: int, compute: Dtype
) -> int:
    """What one rank needs beside weights and state while it runs a step of `step_tokens` tokens.

    Bounded by the step, never by the prompt: the hidden rows and their copies, the widest
    sublayer's inputs and outputs, one block of logits with its probabilities, a product's input in
    parts, and the fixed blocks of attention, delta rule and widened weights.
    """
    heads, kv_heads = local.local_attention_heads, local.local_key_value_heads
    # Per token: the projection, then norm, rotation and output of the queries, and of the keys.
    attention = (7 * heads + 5 * kv_heads) * config.head_dim
    linear = 4 * local.local_qkv_dim + 3 * local.local_z_dim
    mlp = 4 * local.local_intermediate_size
    rows = step_tokens * (_HIDDEN_COPIES * config.hidden_size + max(attention, linear, mlp))
    scores = heads * _QUERY_TOKENS * (2 * _CONTEXT_TOKENS + 4 * config.head_dim)
    context = 2 * kv_heads * _CONTEXT_TOKENS * config.head_dim
    logits = _LOGIT_ROWS * config.vocab_size * _LOGIT_ITEM_BYTES
    widest = max(
        config.hidden_size,
        heads * config.head_dim,
        local.local_z_dim,
        local.local_intermediate_size,
    )
    panels = -(-min(step_tokens, _CUT_ROWS) // _CUT_PANEL)
    cut = panels * _CUT_PANEL * -(-widest // _CUT_PANEL) * _CUT_PANEL * _CUT_ITEM_BYTES
    items = rows + scores + context
    return items * compute.item_bytes + logits + cut + _FIXED_BLOCKS_BYTES
