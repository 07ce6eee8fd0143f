"""Known mistakes in loading, packing and sharding Qwen3.5, each as one patch of the engine.

Used by model/qwen35_mutants_test.py, as model/qwen35_mutants.py is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from model import qwen35, qwen35_weights
from model.lockstep import Lockstep
from model.ops import Array
from model.qwen35_mutants import Mutant, Patch, Tamper, rounded, swap
from model.qwen35_weights import LinearAttentionWeights
from program.partition import Cut, IndexRange, Rows, Sections, ShardRule, cut


def contiguous_sections(original: Any) -> Any:
    def wrong(rule: ShardRule, shape: tuple[int, ...], rank: int, world_size: int) -> Cut:
        whole = Rows(shape[0]) if isinstance(rule, Sections) else rule
        return cut(whole, shape, rank, world_size)

    return wrong


def interleaved_value_heads(original: Any) -> Any:
    """Heads r, r + R, r + 2 R, ... of z, a, b, A_log and dt_bias: 8 value heads in base."""

    def wrong(rule: ShardRule, shape: tuple[int, ...], rank: int, world_size: int) -> Cut:
        if rule != Rows(8) or shape[0] not in (8, 8 * 12):
            return cut(rule, shape, rank, world_size)
        size = shape[0] // 8
        heads = range(rank, 8, world_size)
        return Cut(0, tuple(IndexRange(head * size, (head + 1) * size) for head in heads))

    return wrong


def plant_residual_per_rank(patch: Patch) -> None:
    partial = qwen35.Qwen35Executor.partial

    def with_residual(self: qwen35.Qwen35Executor, stage: int) -> Array:
        return partial(self, stage) + self._hidden

    def only_total(self: qwen35.Qwen35Executor, stage: int, total: Array) -> None:
        self._hidden = total.copy()

    patch.setattr(qwen35.Qwen35Executor, "partial", with_residual)
    patch.setattr(qwen35.Qwen35Executor, "reduced", only_total)


def embedding_as_head(ranks: Lockstep) -> None:
    weights = ranks.primary._weights
    ranks.primary._weights = replace(weights, head=weights.embedding)


def on_linear_layers(change: Callable[[LinearAttentionWeights], LinearAttentionWeights]) -> Tamper:
    def tamper(ranks: Lockstep) -> None:
        for executor in ranks.executors:
            changed = [
                replace(layer, mixer=change(layer.mixer))
                if isinstance(layer.mixer, LinearAttentionWeights)
                else layer
                for layer in executor._weights.layers
            ]
            executor._weights = replace(executor._weights, layers=tuple(changed))

    return tamper


MUTANTS: dict[str, Mutant] = {
    "norm_plain_w": Mutant(
        swap(qwen35_weights._Loader, "_centred", lambda _: lambda self, name: self._vector(name))
    ),
    "ab_swapped": Mutant(
        swap(qwen35_weights, "LINEAR_ATTENTION_INPUTS", lambda t: (*t[:2], t[3], t[2]))
    ),
    "tp_contiguous_qkv": Mutant(swap(qwen35_weights, "cut", contiguous_sections)),
    "tp_interleaved_value_heads": Mutant(swap(qwen35_weights, "cut", interleaved_value_heads)),
    "residual_per_rank": Mutant(plant_residual_per_rank),
    "untied_run_with_embedding": Mutant(tamper=embedding_as_head, shape="deep"),
    "a_log_bf16": Mutant(
        tamper=on_linear_layers(lambda w: replace(w, rate=np.exp(rounded(np.log(w.rate)))))
    ),
    "gnorm_weight_bf16": Mutant(
        tamper=on_linear_layers(lambda w: replace(w, norm_weight=rounded(w.norm_weight)))
    ),
}
