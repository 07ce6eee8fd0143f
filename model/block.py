"""One rank of the frozen decoder block: attention and MLP up to the partial each stage ends in.

Maths of docs/spec/program.md (clauses A3 to A10) over model/exact.py. Rows and columns of the
weights are reordered once, when they are loaded, so that every sum finds its terms in bit-reversed
order without a copy. It must not know frames, or what the other ranks do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from errors import MisuseError
from model.exact import (
    F32,
    CausalSoftmax,
    Linear,
    PairwiseSum,
    RmsNorm,
    Rotary,
    SiluGate,
    bit_axes,
    bit_reversed,
    padded_width,
    reversed_bit_axes,
)
from program.block import (
    HEAD_DIM,
    HIDDEN_SIZE,
    INTERMEDIATE_SIZE,
    LEAVES,
    QUERY_HEADS_PER_KV_HEAD,
)
from program.spec import ProgramSpec

RMS_NORM_EPS: Final = 1e-6
# 1 / sqrt(head_dim), correctly rounded to binary64.
SCORE_SCALE: Final = float.fromhex("0x1.6a09e667f3bcdp-1")
LEAF_COLUMNS: Final = INTERMEDIATE_SIZE // LEAVES
# Scratch grows with the tokens computed together, and results do not depend on it.
GROUP_TOKENS_MAX: Final = 512

Operation = Callable[[], None]


class BlockExecutor:
    """The block on one rank: load once, then begin, partial, reduced, partial, reduced, finish."""

    def __init__(self, spec: ProgramSpec, rank: int) -> None:
        self._spec = spec
        self._rank = rank
        self._weights: _Weights | None = None
        self._scratch: _Scratch | None = None
        self._residual: F32 | None = None

    def load(self, shards: Mapping[str, F32]) -> None:
        """Takes this rank's weights, one array of the spec's local shape per name.

        Raises MisuseError on other names or shapes; the session has checked them by then.
        """
        expected = {
            weight.name: weight.local_shape(self._rank, self._spec.world_size)
            for weight in self._spec.weights
        }
        received = {name: array.shape for name, array in shards.items()}
        if received != expected:
            raise MisuseError(f"block weights {received}, expected {expected}")
        self._weights = _Weights.prepare(shards, LEAVES // self._spec.world_size)
        self._scratch = None

    def begin(self, x: F32) -> None:
        """Starts a step on the operand x: [batch, sequence, hidden], copied."""
        if self._weights is None:
            raise MisuseError("begin before load")
        batch, sequence, _ = x.shape
        group = _group_size(batch, sequence)
        if self._scratch is None or self._scratch.x.shape[:2] != (group, sequence):
            self._scratch = _Scratch(self._weights, group, sequence)
        self._residual = np.array(x, np.float32, order="C")

    def partial(self, stage_index: int) -> F32:
        """This rank's partial of stage 0 (attention) or 1 (MLP): [batch, sequence, hidden], new."""
        scratch, residual = self._running()
        operations = scratch.stages[stage_index]
        result = np.empty_like(residual)
        group = len(scratch.x)
        for first in range(0, len(residual), group):
            scratch.x[...] = residual[first : first + group]
            for operation in operations:
                operation()
            result[first : first + group] = scratch.partial
        return result

    def reduced(self, stage_index: int, total: F32) -> None:
        """Adds the sum over ranks of stage `stage_index`, [batch, sequence, hidden] (A10)."""
        _, residual = self._running()
        np.add(residual, total, residual)

    def finish(self) -> F32:
        """The block's output y, [batch, sequence, hidden]; the same bytes on every rank."""
        _, residual = self._running()
        self._residual = None
        return residual

    def _running(self) -> tuple[_Scratch, F32]:
        if self._scratch is None or self._residual is None:
            raise MisuseError("no step is running; call begin first")
        return self._scratch, self._residual


def _group_size(batch: int, sequence: int) -> int:
    """How many sequences are computed together: a divisor of the batch, within the token bound."""
    return max(
        size
        for size in range(1, batch + 1)
        if batch % size == 0 and (size == 1 or size * sequence <= GROUP_TOKENS_MAX)
    )


@dataclass(frozen=True)
class _Weights:
    """A rank's weights with leaves, and columns within an MLP leaf, in bit-reversed order.

    qkv: [rows, hidden]; rows are, for each of the two channels of a head, the query heads (leaf
    by leaf) and then the key heads; last the value channels. out: [channel, head, leaf, 1, 1,
    hidden]. gate_up: [2, columns, hidden]; a column is [c % 2, the other bits of c, leaf].
    down: [2, 3, leaf, 1, 1, hidden].
    """

    leaves: int
    qkv: F32
    out: F32
    gate_up: F32
    down: F32

    @classmethod
    def prepare(cls, shards: Mapping[str, F32], leaves: int) -> _Weights:
        order = bit_reversed(leaves)
        heads = QUERY_HEADS_PER_KV_HEAD

        def channels_first(name: str, heads_per_leaf: int) -> F32:
            rows = shards[name].reshape(leaves, heads_per_leaf, HEAD_DIM, HIDDEN_SIZE)[order]
            return np.moveaxis(rows, 2, 0).reshape(HEAD_DIM, leaves * heads_per_leaf, HIDDEN_SIZE)

        query, key = channels_first("wq", heads), channels_first("wk", 1)
        value = channels_first("wv", 1).reshape(-1, HIDDEN_SIZE)
        turned = np.concatenate((query, key), axis=1).reshape(-1, HIDDEN_SIZE)
        out = shards["wo"].reshape(HIDDEN_SIZE, leaves, heads, HEAD_DIM)[:, order]
        columns = [c for c in bit_reversed(padded_width(LEAF_COLUMNS)) if c < LEAF_COLUMNS]

        def columns_first(name: str) -> F32:
            rows = shards[name].reshape(leaves, LEAF_COLUMNS, HIDDEN_SIZE)[order][:, columns]
            return rows.swapaxes(0, 1).reshape(-1, HIDDEN_SIZE)

        down = shards["w_down"].T.reshape(leaves, LEAF_COLUMNS, HIDDEN_SIZE)[order][:, columns]
        halves = down.swapaxes(0, 1).reshape(2, -1, leaves, 1, 1, HIDDEN_SIZE)
        return cls(
            leaves=leaves,
            qkv=np.concatenate((turned, value)),
            out=np.ascontiguousarray(out.transpose(3, 2, 1, 0)[:, :, :, None, None]),
            gate_up=np.stack((columns_first("w_gate"), columns_first("w_up"))),
            down=np.ascontiguousarray(halves),
        )


class _Scratch:
    """Arrays for `group` sequences computed together, and the operations bound to them.

    x: the residual stream before the stage; partial: what the stage ends in; both [group,
    sequence, hidden]. stages: the operations of each stage, in order.
    """

    def __init__(self, weights: _Weights, group: int, sequence: int) -> None:
        self.x = np.empty((group, sequence, HIDDEN_SIZE), np.float32)
        self.partial = np.empty_like(self.x)
        self._normed = np.empty_like(self.x)
        norm = RmsNorm(self.x, self._normed, RMS_NORM_EPS)
        self.stages: tuple[tuple[Operation, ...], ...] = (
            (norm, *self._attention(weights)),
            (norm, *self._mlp(weights)),
        )

    def _attention(self, weights: _Weights) -> tuple[Operation, ...]:
        """From the normed stream to Wo times the attention of this rank's heads (A6, A7, A8)."""
        group, sequence, _ = self.x.shape
        leaves, heads, keys = weights.leaves, QUERY_HEADS_PER_KV_HEAD, padded_width(sequence)
        # Positions from `sequence` to `keys` stay +0: the padding of A2.
        features = np.zeros((len(weights.qkv), group, keys), np.float32)
        turned_rows = HEAD_DIM * leaves * (heads + 1)
        unturned = features[:turned_rows].reshape(HEAD_DIM, -1, group, keys)
        turned = np.empty_like(unturned)
        value = features[turned_rows:].reshape(HEAD_DIM, leaves, group, keys)
        query = turned[:, : leaves * heads, :, :sequence]
        query = query.reshape(HEAD_DIM, leaves, heads, group, sequence)
        key = turned[:, leaves * heads :]

        # Axes from here: [key, leaf, query head of the leaf, sequence of the group, query].
        scores = np.empty((keys, leaves, heads, group, sequence), np.float32)
        probability = np.empty_like(scores)
        products = np.empty((HEAD_DIM, *scores.shape), np.float32)
        key_terms = reversed_bit_axes(np.moveaxis(key, -1, 0))[..., None, :, None]
        score_products = bit_axes(np.moveaxis(products, 1, 0))

        weighted = products.reshape(keys, HEAD_DIM, *scores.shape[1:])
        value_terms = reversed_bit_axes(np.moveaxis(value, -1, 0))[..., None, :, None]
        probability_terms = bit_axes(probability[:, None])
        mixed = np.empty((HEAD_DIM, *scores.shape[1:]), np.float32)

        projected = np.empty((HEAD_DIM, heads, leaves, *self.x.shape), np.float32)
        mixed_terms = mixed.swapaxes(1, 2)[..., None]
        return (
            Linear(self._normed, weights.qkv, np.moveaxis(features[:, :, :sequence], 0, -1)),
            Rotary(unturned, turned),
            partial(np.multiply, query, key_terms, score_products),
            PairwiseSum(products, scores),
            CausalSoftmax(scores, probability, SCORE_SCALE),
            partial(np.multiply, probability_terms, value_terms, bit_axes(weighted)),
            PairwiseSum(weighted, mixed),
            partial(np.multiply, mixed_terms, weights.out, projected),
            PairwiseSum(projected.reshape(-1, *self.x.shape), self.partial),
        )

    def _mlp(self, weights: _Weights) -> tuple[Operation, ...]:
        """From the normed stream to Wdown times the gated columns of this rank (A9)."""
        leaves, width = weights.leaves, padded_width(LEAF_COLUMNS)
        columns = weights.gate_up.shape[1]
        gate_up = np.empty((2, *self.x.shape[:-1], columns), np.float32)
        gated = np.empty_like(gate_up[0])
        # Six columns per leaf: the two rows that are never written stay +0, the padding of A2.
        products = np.zeros((2, width // 2, leaves, *self.x.shape), np.float32)
        gated_terms = np.moveaxis(gated.reshape(*self.x.shape[:-1], 2, -1, leaves), (0, 1), (3, 4))
        return (
            Linear(self._normed, weights.gate_up, np.moveaxis(gate_up, 0, -2)),
            SiluGate(gate_up[0], gate_up[1], gated),
            partial(
                np.multiply,
                gated_terms[..., None],
                weights.down,
                products[:, : LEAF_COLUMNS // 2],
            ),
            PairwiseSum(products.reshape(-1, *self.x.shape), self.partial),
        )
