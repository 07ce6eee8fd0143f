"""The text part of Qwen3.5 once more, in binary64 with the standard library alone: what is true.

Written from docs/spec/program.md (clauses F), and importing nothing of this repository, so that a
fault of the runtime can't hide here. One token after the other, the delta rule as it is defined,
no ranks. For tiny shapes: a model of 10^5 weights takes some 30 ms for each token.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import add, mul
from typing import Any, Final

# F5: added to the sum of squares of a query or key.
UNIT_EPS: Final = 1e-6

Vector = list[float]
Matrix = list[Vector]
# By name without a prefix (program.md Q7). Two axes: rows; one: a single row; conv1d: [channel][K].
Weights = Mapping[str, Matrix]


@dataclass(frozen=True)
class Shape:
    """What the formulas need of config.json, in its own words."""

    layer_types: tuple[str, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    rms_norm_eps: float
    tie_word_embeddings: bool
    sigmoid_gate: bool

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Shape:
        """Of a decoded config.json, nested or flat. Raises KeyError for a key that is missing."""
        text = document.get("text_config", document)
        rope = text["rope_parameters"]
        tied = text.get("tie_word_embeddings", document.get("tie_word_embeddings", False))
        return cls(
            layer_types=tuple(text["layer_types"]),
            num_attention_heads=text["num_attention_heads"],
            num_key_value_heads=text["num_key_value_heads"],
            head_dim=text["head_dim"],
            rotary_dim=int(text["head_dim"] * rope["partial_rotary_factor"]),
            rope_theta=rope["rope_theta"],
            linear_num_key_heads=text["linear_num_key_heads"],
            linear_num_value_heads=text["linear_num_value_heads"],
            linear_key_head_dim=text["linear_key_head_dim"],
            linear_value_head_dim=text["linear_value_head_dim"],
            rms_norm_eps=text["rms_norm_eps"],
            tie_word_embeddings=tied,
            sigmoid_gate=text.get("output_gate_type") == "sigmoid",
        )


@dataclass
class LayerState:
    """What a layer keeps. keys, values: by token, by KV head. window: u of the last K tokens.

    recurrent: [value head][dk][dv].
    """

    keys: list[list[Vector]] = field(default_factory=list)
    values: list[list[Vector]] = field(default_factory=list)
    window: list[Vector] = field(default_factory=list)
    recurrent: list[Matrix] = field(default_factory=list)


class Model:
    """One sequence, from its first token on."""

    def __init__(self, shape: Shape, weights: Weights) -> None:
        self._shape = shape
        self._weights = weights
        self._states = [LayerState() for _ in shape.layer_types]
        self._position = 0

    def step(self, token: int) -> Vector:
        """The logits after the next token: [vocabulary]."""
        x = list(self._weights["embed_tokens.weight"][token])
        for layer, kind in enumerate(self._shape.layer_types):
            prefix = f"layers.{layer}."
            normed = self._norm(prefix + "input_layernorm.weight", x)
            if kind == "full_attention":
                mixed = self._attention(prefix + "self_attn.", normed, self._states[layer])
            else:
                mixed = self._linear(prefix + "linear_attn.", normed, self._states[layer])
            x = list(map(add, x, mixed))
            normed = self._norm(prefix + "post_attention_layernorm.weight", x)
            x = list(map(add, x, self._mlp(prefix + "mlp.", normed)))
        self._position += 1
        head = "embed_tokens.weight" if self._shape.tie_word_embeddings else "lm_head.weight"
        return self._apply(head, self._norm("norm.weight", x))

    def _apply(self, name: str, x: Vector) -> Vector:
        return [dot(row, x) for row in self._weights[name]]

    def _norm(self, name: str, x: Vector) -> Vector:
        """F1."""
        (scale,) = self._weights[name]
        return [value * (1 + w) for value, w in zip(self._unit_mean(x), scale, strict=True)]

    def _unit_mean(self, x: Vector) -> Vector:
        root = math.sqrt(dot(x, x) / len(x) + self._shape.rms_norm_eps)
        return [value / root for value in x]

    def _mlp(self, prefix: str, y: Vector) -> Vector:
        gate, up = (self._apply(f"{prefix}{name}_proj.weight", y) for name in ("gate", "up"))
        inner = [silu(g) * u for g, u in zip(gate, up, strict=True)]
        return self._apply(prefix + "down_proj.weight", inner)

    def _attention(self, prefix: str, y: Vector, state: LayerState) -> Vector:
        """F3."""
        shape, size = self._shape, self._shape.head_dim
        pairs = cut(self._apply(prefix + "q_proj.weight", y), size)
        queries, gates = pairs[0::2], pairs[1::2]
        keys = cut(self._apply(prefix + "k_proj.weight", y), size)
        state.keys.append([self._rotated(prefix + "k_norm.weight", key) for key in keys])
        state.values.append(cut(self._apply(prefix + "v_proj.weight", y), size))
        group = shape.num_attention_heads // shape.num_key_value_heads
        mixed: Vector = []
        for head, query in enumerate(queries):
            turned = self._rotated(prefix + "q_norm.weight", query)
            seen = [at[head // group] for at in state.keys]
            shares = softmax([dot(turned, key) / math.sqrt(size) for key in seen])
            columns = zip(*(at[head // group] for at in state.values), strict=True)
            mixed += [dot(shares, column) for column in columns]
        gated = [a * sigmoid(g) for a, g in zip(mixed, chain(*gates), strict=True)]
        return self._apply(prefix + "o_proj.weight", gated)

    def _rotated(self, name: str, head: Vector) -> Vector:
        """F1 over the head, then F4."""
        x, half = self._norm(name, head), self._shape.rotary_dim // 2
        for i in range(half):
            angle = self._position * self._shape.rope_theta ** (-i / half)
            a, b, c, s = x[i], x[i + half], math.cos(angle), math.sin(angle)
            x[i], x[i + half] = a * c - b * s, b * c + a * s
        return x

    def _linear(self, prefix: str, y: Vector, state: LayerState) -> Vector:
        """F5."""
        shape = self._shape
        channels = self._convolved(prefix, y, state)
        size, width = shape.linear_key_head_dim, shape.linear_value_head_dim
        section = shape.linear_num_key_heads * size
        queries, keys = (
            [unit(head) for head in cut(channels[first : first + section], size)]
            for first in (0, section)
        )
        values = cut(channels[2 * section :], width)
        gates = cut(self._apply(prefix + "in_proj_z.weight", y), width)
        betas = [sigmoid(b) for b in self._apply(prefix + "in_proj_b.weight", y)]
        decays = self._decays(prefix, y)
        if not state.recurrent:
            state.recurrent = [[[0.0] * width for _ in range(size)] for _ in values]
        group = shape.linear_num_value_heads // shape.linear_num_key_heads
        (weight,) = self._weights[prefix + "norm.weight"]
        gate_of = sigmoid if shape.sigmoid_gate else silu
        mixed: Vector = []
        for head, value in enumerate(values):
            read = [q / math.sqrt(size) for q in queries[head // group]]
            key, table = keys[head // group], state.recurrent[head]
            output = delta_step(table, read, key, value, betas[head], decays[head])
            normed = self._unit_mean(output)
            mixed += [
                o * w * gate_of(z) for o, w, z in zip(normed, weight, gates[head], strict=True)
            ]
        return self._apply(prefix + "out_proj.weight", mixed)

    def _convolved(self, prefix: str, y: Vector, state: LayerState) -> Vector:
        """SiLU of the convolution, by channel; the window moves on."""
        kernels = self._weights[prefix + "conv1d.weight"]
        if not state.window:
            state.window = [[0.0] * len(kernels) for _ in kernels[0]]
        state.window = [*state.window[1:], self._apply(prefix + "in_proj_qkv.weight", y)]
        by_channel = zip(*state.window, strict=True)
        return [silu(dot(kernel, u)) for kernel, u in zip(kernels, by_channel, strict=True)]

    def _decays(self, prefix: str, y: Vector) -> Vector:
        """exp(g) of each value head."""
        (rates,), (biases,) = self._weights[prefix + "A_log"], self._weights[prefix + "dt_bias"]
        inputs = self._apply(prefix + "in_proj_a.weight", y)
        return [
            math.exp(-math.exp(rate) * softplus(a + bias))
            for rate, bias, a in zip(rates, biases, inputs, strict=True)
        ]


def logits(shape: Shape, weights: Weights, tokens: Sequence[int]) -> Matrix:
    """After every token of a sequence: [tokens][vocabulary]."""
    model = Model(shape, weights)
    return [model.step(token) for token in tokens]


def delta_step(
    table: Matrix, query: Vector, key: Vector, value: Vector, beta: float, decay: float
) -> Vector:
    """Decay, correct, read: changes `table` [dk][dv] in place and returns the output [dv]."""
    for row in table:
        row[:] = [decay * s for s in row]
    known = [dot(key, column) for column in zip(*table, strict=True)]
    change = [beta * (v - k) for v, k in zip(value, known, strict=True)]
    for row, k in zip(table, key, strict=True):
        row[:] = [s + k * c for s, c in zip(row, change, strict=True)]
    return [dot(query, column) for column in zip(*table, strict=True)]


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    total: float = sum(map(mul, a, b))
    return total


def cut(x: Vector, size: int) -> list[Vector]:
    """Consecutive heads of `size` channels."""
    return [x[first : first + size] for first in range(0, len(x), size)]


def unit(x: Vector) -> Vector:
    root = math.sqrt(dot(x, x) + UNIT_EPS)
    return [value / root for value in x]


def sigmoid(a: float) -> float:
    if a >= 0:
        return 1 / (1 + math.exp(-a))
    return math.exp(a) / (1 + math.exp(a))


def silu(a: float) -> float:
    return a * sigmoid(a)


def softplus(a: float) -> float:
    """ln(1 + exp(a)) without overflow."""
    return max(a, 0.0) + math.log1p(math.exp(-abs(a)))


def softmax(scores: Vector) -> Vector:
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    total = sum(weights)
    return [weight / total for weight in weights]
