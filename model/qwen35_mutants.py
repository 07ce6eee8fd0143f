"""Known mistakes in the formulas of Qwen3.5, each as one patch of the engine.

Used by model/qwen35_mutants_test.py. Names of the engine are replaced where they are used, so a
mutant changes nothing but the one thing it stands for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from model import gated_delta, qwen35, qwen35_layers
from model.linear import narrow, widen
from model.lockstep import Lockstep
from model.ops import Array, l2_norm, rms_norm, sigmoid, silu, softplus
from model.rope import rotate as turn
from program.checkpoint import StoredDtype
from program.qwen35 import OutputGate

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
Tamper = Callable[[Lockstep], None]


@dataclass(frozen=True)
class Mutant:
    """shape: the golden shape that shows it. plant: before loading; tamper: after loading."""

    plant: Plant = lambda patch: None
    tamper: Tamper = lambda ranks: None
    shape: str = "base"
    degree: int = 2


def swap(module: object, name: str, make: Callable[[Any], Any]) -> Plant:
    """Replace a name by what `make` builds of the original."""
    return lambda patch: patch.setattr(module, name, make(getattr(module, name)))


def layers(name: str, make: Callable[[Any], Any]) -> Plant:
    return swap(qwen35_layers, name, make)


def every_rule(wrap: Callable[[Any], Any]) -> Plant:
    """Wrap the delta rule, as a step and in blocks: both have state as their last argument."""

    def plant(patch: Patch) -> None:
        for name in ("gated_delta_step", "gated_delta_chunk"):
            patch.setattr(qwen35_layers, name, wrap(getattr(qwen35_layers, name)))

    return plant


def own_rule(step: Callable[..., Array]) -> Plant:
    """Replace the delta rule by `step`, token by token."""

    def chunk(q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array) -> Array:
        return np.stack(
            [step(q[t], k[t], v[t], np.exp(g[t]), beta[t], state) for t in range(len(v))]
        )

    def plant(patch: Patch) -> None:
        patch.setattr(qwen35_layers, "gated_delta_step", step)
        patch.setattr(qwen35_layers, "gated_delta_chunk", chunk)

    return plant


def heads_only(change: Callable[[Array], Array], original: Callable[[Array], Array]) -> Any:
    """`change` for arrays of heads [tokens, heads, dim], the original for others."""
    return lambda x: change(x) if x.ndim == 3 else original(x)


def tokens_by_heads(change: Callable[[Array], Array], original: Callable[[Array], Array]) -> Any:
    return lambda x: change(x) if x.ndim == 2 else original(x)


# --- norms and gates --------------------------------------------------------------------------


def without_head_norm(original: Any) -> Any:
    return lambda x, scale, eps: x if x.ndim == 3 else original(x, scale, eps)


def plant_rope_before_norm(patch: Patch) -> None:
    pending: list[tuple[Array, float]] = []

    def norm(x: Array, scale: Array, eps: float) -> Array:
        pending.append((scale, eps))
        return x

    def rotate(x: Array, cos: Array, sin: Array) -> Array:
        return rms_norm(turn(x, cos, sin), *pending.pop())

    patch.setattr(qwen35_layers, "rms_norm", norm)
    patch.setattr(qwen35_layers, "rotate", rotate)


def split_halves(projected: Array, heads: int, head_dim: int) -> tuple[Array, Array]:
    halves = projected.reshape(len(projected), 2, heads, head_dim)
    return halves[:, 0], halves[:, 1]


def sigmoid_gate(ranks: Lockstep) -> None:
    for executor in ranks.executors:
        sublayers = executor._sublayers
        sublayers._config = replace(sublayers._config, output_gate=OutputGate.SIGMOID)


# --- rotary embedding -------------------------------------------------------------------------


def turned_channels(change: Callable[[int], int]) -> Plant:
    """tp4 turns 4 of 8 channels."""
    return swap(
        qwen35,
        "inverse_frequencies",
        lambda original: lambda dim, theta, dtype: original(change(dim), theta, dtype),
    )


def denominator_head_dim(original: Any) -> Any:
    def frequencies(dim: int, theta: float, dtype: Any) -> Array:
        halved: Array = original(2 * dim, theta, dtype)[: dim // 2]
        return halved

    return frequencies


def rotate_pairs(x: Array, cos: Array, sin: Array) -> Array:
    turned, width = x.copy(), 2 * cos.shape[-1]
    cos, sin = cos[:, None, :], sin[:, None, :]
    even, odd = x[..., 0:width:2], x[..., 1:width:2]
    turned[..., 0:width:2] = even * cos - odd * sin
    turned[..., 1:width:2] = odd * cos + even * sin
    return turned


def restarting(original: Any) -> Any:
    return lambda positions, frequencies: original(positions - positions[0], frequencies)


# --- pairing of heads -------------------------------------------------------------------------


def tiled(heads: int, groups: int) -> list[int]:
    """Order of heads in which h % groups == the group that h // (heads / groups) names."""
    return sorted(range(heads), key=lambda head: (head % groups, head // groups))


def kv_tile(original: Any) -> Any:
    def attention(query: Array, start: int, read: Any) -> Array:
        order = tiled(query.shape[1], len(read(0, 1)[0]))
        result = np.empty_like(query)
        result[:, order] = original(query[:, order], start, read)
        return result

    return attention


def vhead_tile(original: Any) -> Any:
    def rule(q: Array, k: Array, v: Array, g: Array, beta: Array, state: Array) -> Array:
        order = tiled(v.shape[-2], k.shape[-2])
        ordered = np.ascontiguousarray(state[order])
        result = np.empty_like(v)
        result[..., order, :] = original(
            q, k, v[..., order, :], g[..., order], beta[..., order], ordered
        )
        state[order] = ordered
        return result

    return rule


# --- convolution ------------------------------------------------------------------------------


def convolution(change: Callable[..., tuple[Array, Array]]) -> Plant:
    return layers("causal_convolution", lambda original: lambda *a: change(original, *a))


def conv_drop_left(original: Any, u: Array, state: Array, w: Array) -> tuple[Array, Array]:
    return original(u, np.zeros_like(state), w)[0], original(u, state, w)[1]


def conv_state_after(original: Any, u: Array, state: Array, w: Array) -> tuple[Array, Array]:
    output, _ = original(u, state, w)
    return output, np.concatenate([state, output.T], axis=1)[:, -state.shape[1] :]


def conv_state_short(original: Any, u: Array, state: Array, w: Array) -> tuple[Array, Array]:
    output, _ = original(u, state, w)
    return output, np.concatenate([np.zeros_like(state), u.T], axis=1)[:, -state.shape[1] :]


def key_query_value(original: Any) -> Any:
    def split(self: Any, convolved: Array) -> Any:
        width = self._local.local_q_dim
        swapped = np.concatenate(
            [convolved[:, width : 2 * width], convolved[:, :width], convolved[:, 2 * width :]], 1
        )
        return original(self, swapped)

    return split


def unscaled_query(original: Any) -> Any:
    def split(self: Any, convolved: Array) -> Any:
        query, key, value = original(self, convolved)
        return query * self._local.linear_key_head_dim**0.5, key, value

    return split


# --- delta rule -------------------------------------------------------------------------------


def repeated(x: Array, state: Array) -> Array:
    return np.repeat(x, len(state) // len(x), axis=0)


def correction_of(k: Array, v: Array, beta: Array, state: Array) -> Array:
    recalled: Array = np.matmul(k[:, None], state)[:, 0]
    return k[:, :, None] * (beta[:, None] * (v - recalled))[:, None, :]


def decay_after(q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array) -> Array:
    q, k = repeated(q, state), repeated(k, state)
    change = correction_of(k, v, beta, state)
    state *= decay[:, None, None]
    state += change
    output: Array = np.matmul(q[:, None], state)[:, 0]
    return output


def out_before_update(
    q: Array, k: Array, v: Array, decay: Array, beta: Array, state: Array
) -> Array:
    q, k = repeated(q, state), repeated(k, state)
    state *= decay[:, None, None]
    output: Array = np.matmul(q[:, None], state)[:, 0]
    state += correction_of(k, v, beta, state)
    return output


def state_changed(before: Callable[[Array], None], after: Callable[[Array], None]) -> Plant:
    def wrap(original: Any) -> Any:
        def rule(*arguments: Array) -> Array:
            before(arguments[-1])
            output: Array = original(*arguments)
            after(arguments[-1])
            return output

        return rule

    return every_rule(wrap)


def nothing(state: Array) -> None:
    pass


def zero(state: Array) -> None:
    state[...] = 0


def transpose(state: Array) -> None:
    state[...] = state.swapaxes(1, 2).copy()


def rounded(values: Array) -> Array:
    """values as bfloat16 has them."""
    bits = narrow(values.astype(np.float32), StoredDtype.FLOAT32, StoredDtype.BFLOAT16)
    result: Array = np.empty(values.shape, values.dtype)
    widen(bits, StoredDtype.BFLOAT16, result)
    return result


def to_bfloat16(state: Array) -> None:
    state[...] = rounded(state)


def exponent_ratio(original: Any) -> Any:
    def ratio(total: Array) -> Array:
        result: Array = np.tril(np.exp(total)[..., :, None] * np.exp(-total)[..., None, :])
        return result

    return ratio


MUTANTS: dict[str, Mutant] = {
    "gnorm_plus_one": Mutant(
        layers("gated_rms_norm", lambda f: lambda x, gate, w, eps: f(x, gate, 1 + w, eps))
    ),
    "gnorm_sigmoid": Mutant(tamper=sigmoid_gate),
    "gnorm_gate_first": Mutant(
        layers("gated_rms_norm", lambda _: lambda x, gate, w, eps: rms_norm(x * gate, w, eps))
    ),
    "gate_split_halves": Mutant(layers("split_query_and_gate", lambda _: split_halves)),
    "gate_first": Mutant(layers("split_query_and_gate", lambda f: lambda *a: f(*a)[::-1])),
    "gate_silu": Mutant(layers("sigmoid", lambda f: heads_only(silu, f))),
    "no_gate": Mutant(layers("sigmoid", lambda f: heads_only(np.ones_like, f))),
    "no_qk_norm": Mutant(layers("rms_norm", without_head_norm)),
    "rope_before_norm": Mutant(plant_rope_before_norm),
    "rope_full_dim": Mutant(turned_channels(lambda dim: 2 * dim), shape="tp4"),
    "rope_denominator_head_dim": Mutant(
        swap(qwen35, "inverse_frequencies", denominator_head_dim), shape="tp4"
    ),
    "rope_interleaved": Mutant(layers("rotate", lambda _: rotate_pairs)),
    "rope_restart": Mutant(swap(qwen35, "rotary_table", restarting)),
    "kv_tile": Mutant(layers("causal_attention", kv_tile), shape="tp4"),
    "conv_flip": Mutant(convolution(lambda f, u, state, w: f(u, state, w[:, ::-1]))),
    "conv_no_silu": Mutant(swap(gated_delta, "silu", lambda _: lambda x: x)),
    "conv_drop_left": Mutant(convolution(conv_drop_left)),
    "conv_state_after": Mutant(convolution(conv_state_after)),
    "conv_state_short": Mutant(convolution(conv_state_short)),
    "qkv_order_kqv": Mutant(swap(qwen35_layers.Sublayers, "_split", key_query_value)),
    "vhead_tile": Mutant(every_rule(vhead_tile), shape="tp4"),
    "l2_none": Mutant(layers("l2_norm", lambda _: lambda x: x)),
    "l2_eps_mean": Mutant(layers("l2_norm", lambda _: lambda x: l2_norm(x, 16e-6))),
    "l2_eps_mean_on_tiny_keys": Mutant(
        layers("l2_norm", lambda _: lambda x: l2_norm(x, 16e-6)), shape="eps_l2"
    ),
    "l2_eps_rms": Mutant(layers("l2_norm", lambda _: lambda x: l2_norm(x, 1e-2)), shape="eps_rms"),
    "q_no_scale": Mutant(swap(qwen35_layers.Sublayers, "_split", unscaled_query)),
    "dt_outside": Mutant(
        layers("log_decay", lambda _: lambda a, rate, bias: -rate * (softplus(a) + bias))
    ),
    "no_softplus": Mutant(
        layers("log_decay", lambda _: lambda a, rate, bias: -rate * np.maximum(a + bias, 0))
    ),
    "beta_two": Mutant(layers("sigmoid", lambda f: tokens_by_heads(lambda x: 2 * sigmoid(x), f))),
    "decay_after": Mutant(own_rule(decay_after)),
    "out_before_update": Mutant(own_rule(out_before_update)),
    "state_dropped": Mutant(state_changed(zero, nothing)),
    "state_transposed": Mutant(state_changed(nothing, transpose), shape="key_eq_value"),
    "state_bf16": Mutant(state_changed(nothing, to_bfloat16)),
    "chunk_ratio": Mutant(swap(gated_delta, "decay_ratio", exponent_ratio)),
}
