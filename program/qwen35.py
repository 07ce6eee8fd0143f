"""Qwen3.5 dense (text part) as two programs on the runtime: weights, cuts, stages and state.

`qwen35/replicated` shards attention and MLP and runs every linear-attention layer whole on every
rank; `qwen35/sharded` shards the linear-attention layers too. Which one runs is chosen by name;
neither falls back to the other (docs/spec/program.md, clauses Q). Index arithmetic and names only:
this file must not know arrays, files or how a value is computed.

Sources: tensor names, shapes and packing as in the published Qwen3.5 checkpoints and transformers
`models/qwen3_5`; the cuts are those of Megatron-LM (arXiv:1909.08053) applied head by head.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from math import gcd
from typing import Final

from errors import ConfigError, ConfigProblem
from program.partition import Columns, OnRank, Replicated, Rows, Section, Sections, ShardRule
from program.spec import Dtype, Loading, ProgramSpec, Stage, StateScope, StateSpec, WeightSpec

PRIMARY_RANK: Final = 0
EMBEDDING: Final = "embed_tokens.weight"
FINAL_NORM: Final = "norm.weight"
HEAD: Final = "lm_head.weight"


class LayerType(Enum):
    """The two mixers of the hybrid, in the words of config.json."""

    LINEAR = "linear_attention"
    FULL = "full_attention"


class OutputGate(Enum):
    """What gates the normalised output of a linear-attention head."""

    SILU = "silu"
    SIGMOID = "sigmoid"


class Variant(Enum):
    """The two programs; the value is the program's name."""

    REPLICATED = "qwen35/replicated"
    SHARDED = "qwen35/sharded"


@dataclass(frozen=True)
class Qwen35Config:
    """What the run depends on, as program/qwen35_config.py reads it from config.json.

    rotary_dim: leading channels of a head that the rotary embedding turns, even.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layer_types: tuple[LayerType, ...]
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    linear_num_key_heads: int
    linear_num_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int
    linear_conv_kernel_dim: int
    rms_norm_eps: float
    max_position_embeddings: int
    tie_word_embeddings: bool
    output_gate: OutputGate
    eos_token_ids: tuple[int, ...]

    @property
    def linear_layers(self) -> tuple[int, ...]:
        return self._layers(LayerType.LINEAR)

    @property
    def full_layers(self) -> tuple[int, ...]:
        return self._layers(LayerType.FULL)

    def _layers(self, layer_type: LayerType) -> tuple[int, ...]:
        return tuple(i for i, kind in enumerate(self.layer_types) if kind is layer_type)


@dataclass(frozen=True)
class LocalDimensions:
    """What one rank holds of a head-structured axis; the same on every rank.

    The linear-attention names are those of the design: q, k and v are the three sections of
    in_proj_qkv and of the convolution's channels, z is the gate of the normalised output.
    """

    local_attention_heads: int
    local_key_value_heads: int
    local_intermediate_size: int
    local_linear_key_heads: int
    local_linear_value_heads: int
    linear_key_head_dim: int
    linear_value_head_dim: int

    @property
    def local_q_dim(self) -> int:
        return self.local_linear_key_heads * self.linear_key_head_dim

    @property
    def local_k_dim(self) -> int:
        return self.local_linear_key_heads * self.linear_key_head_dim

    @property
    def local_v_dim(self) -> int:
        return self.local_linear_value_heads * self.linear_value_head_dim

    @property
    def local_qkv_dim(self) -> int:
        return self.local_q_dim + self.local_k_dim + self.local_v_dim

    @property
    def local_z_dim(self) -> int:
        return self.local_v_dim


def _divided_fields(config: Qwen35Config, variant: Variant) -> dict[str, int]:
    """Config fields that the world size must divide, with their values."""
    fields = {
        "num_attention_heads": config.num_attention_heads,
        "num_key_value_heads": config.num_key_value_heads,
        "intermediate_size": config.intermediate_size,
    }
    if variant is Variant.SHARDED:
        fields["linear_num_key_heads"] = config.linear_num_key_heads
        fields["linear_num_value_heads"] = config.linear_num_value_heads
    return fields


def working_degrees(config: Qwen35Config, variant: Variant) -> tuple[int, ...]:
    """Every world size at which this model can run, ascending."""
    common = gcd(*_divided_fields(config, variant).values())
    return tuple(degree for degree in range(1, common + 1) if common % degree == 0)


def check_degree(config: Qwen35Config, variant: Variant, world_size: int) -> None:
    """Raises ConfigError unless `world_size` divides every cut field; lists the degrees that do.

    To be called before anything is loaded or spawned.
    """
    degrees = ", ".join(str(degree) for degree in working_degrees(config, variant))
    rule = f"degrees that work for {variant.value}: {degrees}"
    if world_size < 1:
        raise ConfigError.single("tp", world_size, f"must be at least 1; {rule}", "config.degree")
    problems = [
        ConfigProblem(field, str(value), f"must be divisible by {world_size} ranks")
        for field, value in _divided_fields(config, variant).items()
        if value % world_size
    ]
    if problems:
        problems[-1] = replace(problems[-1], rule=f"{problems[-1].rule}; {rule}")
        raise ConfigError(problems, "config.degree")


def local_dimensions(config: Qwen35Config, variant: Variant, world_size: int) -> LocalDimensions:
    """The rank-local dimensions. Raises ConfigError as `check_degree` does."""
    check_degree(config, variant, world_size)
    linear_ranks = world_size if variant is Variant.SHARDED else 1
    return LocalDimensions(
        local_attention_heads=config.num_attention_heads // world_size,
        local_key_value_heads=config.num_key_value_heads // world_size,
        local_intermediate_size=config.intermediate_size // world_size,
        local_linear_key_heads=config.linear_num_key_heads // linear_ranks,
        local_linear_value_heads=config.linear_num_value_heads // linear_ranks,
        linear_key_head_dim=config.linear_key_head_dim,
        linear_value_head_dim=config.linear_value_head_dim,
    )


def qwen35_program(
    config: Qwen35Config,
    variant: Variant,
    world_size: int,
    compute: Dtype = Dtype.FLOAT32,
) -> ProgramSpec:
    """The program of this model at `world_size` ranks.

    compute: element type of arithmetic, state and partials; FLOAT64 is the diagnostic mode.
    Raises ConfigError when the world size does not divide the model.
    """
    local = local_dimensions(config, variant, world_size)
    return ProgramSpec(
        name=variant.value,
        world_size=world_size,
        hidden_size=config.hidden_size,
        weights=tuple(_weights(config, variant)),
        stages=tuple(Stage(phase) for phase in _phases(config, variant)),
        loading=Loading.LOCAL,
        artifact_ranks=(PRIMARY_RANK,),
        state=state_specs(config, local, compute),
        partial_dtype=compute,
        folded=True,
        planned=True,
        constants=(
            ("num_attention_heads", str(config.num_attention_heads)),
            ("output_gate", config.output_gate.value),
            ("rms_norm_eps", config.rms_norm_eps.hex()),
            ("rope_theta", config.rope_theta.hex()),
            ("rotary_dim", str(config.rotary_dim)),
            ("tie_word_embeddings", str(config.tie_word_embeddings)),
        ),
    )


def mixer_phase(layer: int) -> str:
    """The stage that ends in the sum after o_proj (full attention) or out_proj (linear)."""
    return f"layers.{layer}.mixer"


def mlp_phase(layer: int) -> str:
    """The stage that ends in the sum after down_proj."""
    return f"layers.{layer}.mlp"


def _phases(config: Qwen35Config, variant: Variant) -> Iterator[str]:
    for layer, kind in enumerate(config.layer_types):
        if kind is LayerType.FULL or variant is Variant.SHARDED:
            yield mixer_phase(layer)
        yield mlp_phase(layer)


def state_specs(
    config: Qwen35Config, local: LocalDimensions, compute: Dtype
) -> tuple[StateSpec, ...]:
    """State of one rank: recurrent and conv per slot, keys and values per token position.

    The leading axis counts the layers of that kind; a kind without layers has no state.
    """
    linear, full = len(config.linear_layers), len(config.full_layers)
    item = compute.item_bytes
    states = []
    if linear:
        recurrent = (
            linear,
            local.local_linear_value_heads,
            local.linear_key_head_dim,
            local.linear_value_head_dim,
        )
        conv = (linear, local.local_qkv_dim, config.linear_conv_kernel_dim - 1)
        states.append(StateSpec("recurrent", recurrent, item, StateScope.SLOT))
        states.append(StateSpec("conv", conv, item, StateScope.SLOT))
    if full:
        cached = (full, local.local_key_value_heads, config.head_dim)
        states.append(StateSpec("keys", cached, item, StateScope.TOKEN))
        states.append(StateSpec("values", cached, item, StateScope.TOKEN))
    return tuple(states)


def _weights(config: Qwen35Config, variant: Variant) -> Iterator[WeightSpec]:
    """Every tensor of the text part, in the order the layers run."""
    hidden, vocab = config.hidden_size, config.vocab_size
    whole = Replicated()
    yield WeightSpec(EMBEDDING, (vocab, hidden), whole)
    for layer, kind in enumerate(config.layer_types):
        prefix = f"layers.{layer}."
        yield WeightSpec(prefix + "input_layernorm.weight", (hidden,), whole)
        if kind is LayerType.FULL:
            yield from _attention_weights(config, prefix + "self_attn.")
        else:
            yield from _linear_attention_weights(config, variant, prefix + "linear_attn.")
        yield WeightSpec(prefix + "post_attention_layernorm.weight", (hidden,), whole)
        yield from _mlp_weights(config, prefix + "mlp.")
    yield WeightSpec(FINAL_NORM, (hidden,), whole)
    if not config.tie_word_embeddings:
        yield WeightSpec(HEAD, (vocab, hidden), OnRank(PRIMARY_RANK))


def _attention_weights(config: Qwen35Config, prefix: str) -> Iterator[WeightSpec]:
    hidden, head_dim = config.hidden_size, config.head_dim
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    # One unit of q_proj is a head's query rows followed by its gate rows, so they stay together.
    yield WeightSpec(prefix + "q_proj.weight", (heads * 2 * head_dim, hidden), Rows(heads))
    yield WeightSpec(prefix + "k_proj.weight", (kv_heads * head_dim, hidden), Rows(kv_heads))
    yield WeightSpec(prefix + "v_proj.weight", (kv_heads * head_dim, hidden), Rows(kv_heads))
    yield WeightSpec(prefix + "q_norm.weight", (head_dim,), Replicated())
    yield WeightSpec(prefix + "k_norm.weight", (head_dim,), Replicated())
    yield WeightSpec(prefix + "o_proj.weight", (hidden, heads * head_dim), Columns(heads))


def _linear_attention_weights(
    config: Qwen35Config, variant: Variant, prefix: str
) -> Iterator[WeightSpec]:
    hidden = config.hidden_size
    key_heads, key_dim = config.linear_num_key_heads, config.linear_key_head_dim
    value_heads, value_dim = config.linear_num_value_heads, config.linear_value_head_dim
    channels = 2 * key_heads * key_dim + value_heads * value_dim
    kernel = config.linear_conv_kernel_dim
    sections = (
        Section(key_heads, key_dim),
        Section(key_heads, key_dim),
        Section(value_heads, value_dim),
    )

    def rule(cut: ShardRule) -> ShardRule:
        return cut if variant is Variant.SHARDED else Replicated()

    qkv, by_head = rule(Sections(sections)), rule(Rows(value_heads))
    yield WeightSpec(prefix + "in_proj_qkv.weight", (channels, hidden), qkv)
    yield WeightSpec(prefix + "in_proj_z.weight", (value_heads * value_dim, hidden), by_head)
    yield WeightSpec(prefix + "in_proj_b.weight", (value_heads, hidden), by_head)
    yield WeightSpec(prefix + "in_proj_a.weight", (value_heads, hidden), by_head)
    yield WeightSpec(prefix + "conv1d.weight", (channels, 1, kernel), qkv)
    yield WeightSpec(prefix + "A_log", (value_heads,), by_head)
    yield WeightSpec(prefix + "dt_bias", (value_heads,), by_head)
    yield WeightSpec(prefix + "norm.weight", (value_dim,), Replicated())
    columns = rule(Columns(value_heads))
    yield WeightSpec(prefix + "out_proj.weight", (hidden, value_heads * value_dim), columns)


def _mlp_weights(config: Qwen35Config, prefix: str) -> Iterator[WeightSpec]:
    hidden, inner = config.hidden_size, config.intermediate_size
    yield WeightSpec(prefix + "gate_proj.weight", (inner, hidden), Rows(inner))
    yield WeightSpec(prefix + "up_proj.weight", (inner, hidden), Rows(inner))
    yield WeightSpec(prefix + "down_proj.weight", (hidden, inner), Columns(inner))
