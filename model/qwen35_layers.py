"""The three sublayers of Qwen3.5 on one rank: gated attention, linear attention, MLP.

Each takes the normalised hidden state [tokens, hidden] of a step and returns this rank's summand of
the sublayer's output, [tokens, hidden]; the caller sums over ranks and adds the residual. Head
counts are rank-local. A span is the tokens of one request; state is read and written by span, so
requests can't meet. It must not know plans, other ranks or how weights are held.
Formulas: transformers `models/qwen3_5/modeling_qwen3_5.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from model.attention import causal_attention
from model.crew import SOLO, Crew
from model.gated_delta import (
    causal_convolution,
    decay_of,
    gated_delta_chunk,
    gated_delta_step,
    log_decay,
)
from model.ops import Array, gated_rms_norm, l2_norm, rms_norm, sigmoid, silu
from model.qwen35_weights import AttentionWeights, LinearAttentionWeights, MlpWeights
from model.rope import rotate
from model.state import PageTable, RankState
from program.qwen35 import LocalDimensions, OutputGate, Qwen35Config

# Tokens whose MLP activations are computed at once, so that they stay in the cache.
_ACTIVATION_TOKENS: Final = 16
# The convolution's channels are shared out in multiples of a cache line.
_CHANNELS: Final = 16
# Below this many elements a second thread costs more than it saves.
_SHARED_ELEMENTS_MIN: Final = 1 << 14


@dataclass(frozen=True)
class Span:
    """Consecutive tokens of one request in a step: at `tokens` of the step's matrix.

    start: position of the first of them in the request.
    """

    slot: int
    start: int
    tokens: slice
    pages: PageTable

    @property
    def count(self) -> int:
        return int(self.tokens.stop - self.tokens.start)


class Sublayers:
    """The sublayers of one rank, over its state."""

    def __init__(
        self,
        config: Qwen35Config,
        local: LocalDimensions,
        state: RankState,
        crew: Crew = SOLO,
    ) -> None:
        self._crew = crew
        self._config = config
        self._local = local
        self._state = state

    def mlp(self, weights: MlpWeights, hidden: Array) -> Array:
        """(silu(gate) * up) Wd^T with [gate | up] = hidden Wi^T (`Qwen3_5MLP`)."""
        inner = weights.inputs(hidden)
        size = self._local.local_intermediate_size
        activated = np.empty((len(inner), size), inner.dtype)

        def part(first: int, last: int) -> None:
            for row in range(first, last, _ACTIVATION_TOKENS):
                rows = slice(row, min(row + _ACTIVATION_TOKENS, last))
                activated[rows] = silu(inner[rows, :size])
                activated[rows] *= inner[rows, size:]

        self._crew_for(activated.size).share(part, len(inner), _ACTIVATION_TOKENS)
        return weights.output(activated)

    def attention(
        self,
        weights: AttentionWeights,
        ordinal: int,
        hidden: Array,
        spans: Sequence[Span],
        rotation: tuple[Array, Array],
    ) -> Array:
        """Gated grouped-query attention (`Qwen3_5Attention`).

        ordinal: which full-attention layer of the state this is; rotation: (cos, sin) of every
        token. Norm over the head comes before rotation; the gate is neither normed nor rotated.
        """
        heads, kv_heads = self._local.local_attention_heads, self._local.local_key_value_heads
        head_dim, eps = self._config.head_dim, self._config.rms_norm_eps
        projected = weights.inputs(hidden)
        tokens, width = len(hidden), heads * 2 * head_dim
        query, gate = split_query_and_gate(projected[:, :width], heads, head_dim)
        key, value = projected[:, width:].reshape(tokens, 2, kv_heads, head_dim).swapaxes(0, 1)
        query = rotate(rms_norm(query, weights.query_scale, eps), *rotation)
        key = rotate(rms_norm(key, weights.key_scale, eps), *rotation)
        for span in spans:
            at = span.tokens
            self._state.write_context(ordinal, span.pages, span.start, key[at], value[at])
        output = self._attended(ordinal, query, spans)
        output *= sigmoid(gate)
        return weights.output(output.reshape(tokens, -1))

    def _attended(self, ordinal: int, query: Array, spans: Sequence[Span]) -> Array:
        """Every span's queries over its own cached context: [tokens, heads, head_dim]."""
        kv_heads = self._local.local_key_value_heads
        group = self._local.local_attention_heads // kv_heads
        output = np.empty_like(query)

        def part(first: int, last: int) -> None:
            """KV heads first .. last - 1 with the query heads that read them."""
            heads = slice(first * group, last * group)
            for span in spans:

                def read(
                    start: int, stop: int, pages: PageTable = span.pages
                ) -> tuple[Array, Array]:
                    keys, values = self._state.read_context(ordinal, pages, start, stop)
                    return keys[first:last], values[first:last]

                output[span.tokens, heads] = causal_attention(
                    query[span.tokens, heads], span.start, read
                )

        scores = sum(span.count * (span.start + span.count) for span in spans)
        self._crew_for(scores * query.shape[1]).share(part, kv_heads)
        return output

    def linear_attention(
        self,
        weights: LinearAttentionWeights,
        ordinal: int,
        hidden: Array,
        spans: Sequence[Span],
    ) -> Array:
        """Gated delta net (`Qwen3_5GatedDeltaNet`).

        ordinal: which linear-attention layer of the state this is.
        """
        local, config = self._local, self._config
        tokens, heads = len(hidden), local.local_linear_value_heads
        projected = weights.inputs(hidden)
        qkv, rest = np.hsplit(projected, [local.local_qkv_dim])
        z, b, a = np.hsplit(rest, [local.local_z_dim, local.local_z_dim + heads])
        beta = sigmoid(b)
        g = log_decay(a, weights.rate, weights.dt_bias)
        query, key, value = self._split(self._convolved(weights, ordinal, qkv, spans))
        output = self._delta_rule(ordinal, (query, key, value, g, beta), spans)
        gate = z.reshape(tokens, heads, -1)
        activated = silu(gate) if config.output_gate is OutputGate.SILU else sigmoid(gate)
        output = gated_rms_norm(output, activated, weights.norm_weight, config.rms_norm_eps)
        return weights.output(output.reshape(tokens, -1))

    def _delta_rule(
        self, ordinal: int, inputs: tuple[Array, Array, Array, Array, Array], spans: Sequence[Span]
    ) -> Array:
        """The delta rule of every span on its own state: [tokens, value heads, value_dim].

        inputs: query, key [tokens, key heads, key_dim], value, g, beta [tokens, value heads, ...].
        """
        query, key, value, g, beta = inputs
        key_heads = self._local.local_linear_key_heads
        ratio = self._local.local_linear_value_heads // key_heads
        output = np.empty_like(value)

        def part(first: int, last: int) -> None:
            keys, values = slice(first, last), slice(first * ratio, last * ratio)
            for span in spans:
                state, at = self._state.recurrent[ordinal, span.slot, values], span.tokens
                q, k, v = query[at, keys], key[at, keys], value[at, values]
                decay, write = g[at, values], beta[at, values]
                if span.count > 1:
                    output[at, values] = gated_delta_chunk(q, k, v, decay, write, state)
                else:
                    output[at, values] = gated_delta_step(
                        q[0], k[0], v[0], decay_of(decay[0]), write[0], state
                    )

        self._crew_for(query.size).share(part, key_heads)
        return output

    def _crew_for(self, elements: int) -> Crew:
        return self._crew if elements >= _SHARED_ELEMENTS_MIN else SOLO

    def _convolved(
        self, weights: LinearAttentionWeights, ordinal: int, qkv: Array, spans: Sequence[Span]
    ) -> Array:
        """The convolution of every span from its own state, which moves on."""
        result = np.empty_like(qkv)

        def part(first: int, last: int) -> None:
            channels = slice(first, last)
            taps = weights.convolution[channels]
            for span in spans:
                state, at = self._state.conv[ordinal, span.slot, channels], span.tokens
                result[at, channels], state[...] = causal_convolution(
                    qkv[at, channels], state, taps
                )

        self._crew_for(qkv.size).share(part, qkv.shape[1], _CHANNELS)
        return result

    def _split(self, convolved: Array) -> tuple[Array, Array, Array]:
        """Sections q, k, v of the convolution's channels, by head; q and k normalised, q scaled."""
        local, tokens = self._local, len(convolved)
        first, second = local.local_q_dim, local.local_q_dim + local.local_k_dim
        heads = local.local_linear_key_heads
        query = l2_norm(convolved[:, :first].reshape(tokens, heads, -1))
        query *= query.dtype.type(local.linear_key_head_dim**-0.5)
        key = l2_norm(convolved[:, first:second].reshape(tokens, heads, -1))
        value = convolved[:, second:].reshape(tokens, local.local_linear_value_heads, -1)
        return query, key, value


def split_query_and_gate(projected: Array, heads: int, head_dim: int) -> tuple[Array, Array]:
    """Rows of q_proj are, by head, the query, then its gate: each [tokens, heads, head_dim]."""
    pairs = projected.reshape(len(projected), heads, 2, head_dim)
    return pairs[:, :, 0], pairs[:, :, 1]
