from __future__ import annotations

import json
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import ConfigError
from program.partition import Replicated, cut
from program.qwen35 import (
    LayerType,
    LocalDimensions,
    OutputGate,
    Qwen35Config,
    Variant,
    check_degree,
    local_dimensions,
    qwen35_program,
    working_degrees,
)
from program.qwen35_config import parse_config
from program.spec import Dtype, Loading, StateScope
from testdata.golden.shapes import SHAPES, config
from testdata.golden.tensor_shapes import text_tensors

# The published 4B model (its config.json).
FOUR_B = Qwen35Config(
    vocab_size=248320,
    hidden_size=2560,
    intermediate_size=9216,
    layer_types=((LayerType.LINEAR,) * 3 + (LayerType.FULL,)) * 8,
    num_attention_heads=16,
    num_key_value_heads=4,
    head_dim=256,
    rotary_dim=64,
    rope_theta=1e7,
    linear_num_key_heads=16,
    linear_num_value_heads=32,
    linear_key_head_dim=128,
    linear_value_head_dim=128,
    linear_conv_kernel_dim=4,
    rms_norm_eps=1e-6,
    max_position_embeddings=262144,
    tie_word_embeddings=True,
    output_gate=OutputGate.SILU,
    eos_token_ids=(248044,),
)


def test_the_4b_model_has_its_published_size_and_collectives() -> None:
    replicated = qwen35_program(FOUR_B, Variant.REPLICATED, 2)
    sharded = qwen35_program(FOUR_B, Variant.SHARDED, 2)
    assert sum(prod(weight.shape) for weight in sharded.weights) == 4_205_751_296
    assert len(sharded.weights) == 426
    assert (len(replicated.stages), len(sharded.stages)) == (40, 64)
    assert sharded.phases[:2] == ("layers.0.mixer", "layers.0.mlp")
    assert replicated.phases[:5] == (
        "layers.0.mlp",
        "layers.1.mlp",
        "layers.2.mlp",
        "layers.3.mixer",
        "layers.3.mlp",
    )
    for program in (replicated, sharded):
        assert program.loading is Loading.LOCAL
        assert program.folded
        assert program.artifact_ranks == (0,)


@pytest.mark.parametrize(
    ("variant", "world_size", "slot_bytes", "token_bytes"),
    [
        (Variant.SHARDED, 1, int(50.25 * 2**20), 65536),
        (Variant.SHARDED, 2, int(25.125 * 2**20), 32768),
        (Variant.REPLICATED, 2, int(50.25 * 2**20), 32768),
    ],
)
def test_the_4b_state_has_the_bytes_of_its_formula(
    variant: Variant, world_size: int, slot_bytes: int, token_bytes: int
) -> None:
    states = qwen35_program(FOUR_B, variant, world_size).state
    by_scope = {
        scope: sum(state.local_bytes for state in states if state.scope is scope)
        for scope in StateScope
    }
    assert by_scope == {StateScope.SLOT: slot_bytes, StateScope.TOKEN: token_bytes}


def test_local_dimensions_of_the_4b_model() -> None:
    local = local_dimensions(FOUR_B, Variant.SHARDED, 4)
    assert local == LocalDimensions(
        local_attention_heads=4,
        local_key_value_heads=1,
        local_intermediate_size=2304,
        local_linear_key_heads=4,
        local_linear_value_heads=8,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
    )
    assert (local.local_q_dim, local.local_k_dim, local.local_v_dim) == (512, 512, 1024)
    assert (local.local_qkv_dim, local.local_z_dim) == (2048, 1024)
    states = {state.name: state for state in qwen35_program(FOUR_B, Variant.SHARDED, 4).state}
    assert states["recurrent"].local_shape == (24, 8, 128, 128)
    assert states["conv"].local_shape == (24, 2048, 3)
    assert states["keys"].local_shape == states["values"].local_shape == (8, 1, 256)


def test_float64_mode_changes_partials_and_state_only() -> None:
    single = qwen35_program(FOUR_B, Variant.SHARDED, 2)
    double = qwen35_program(FOUR_B, Variant.SHARDED, 2, Dtype.FLOAT64)
    assert double.partial_dtype is Dtype.FLOAT64
    assert [state.item_bytes for state in double.state] == [8, 8, 8, 8]
    assert double.weights == single.weights


def test_degrees() -> None:
    assert working_degrees(FOUR_B, Variant.SHARDED) == (1, 2, 4)
    odd = read_shape("odd_linear")
    assert working_degrees(odd, Variant.REPLICATED) == (1, 2, 4)
    assert working_degrees(odd, Variant.SHARDED) == (1,)
    check_degree(FOUR_B, Variant.SHARDED, 4)
    for degree in (0, -1, 3, 8):
        with pytest.raises(ConfigError) as caught:
            check_degree(FOUR_B, Variant.SHARDED, degree)
        assert caught.value.code == "config.degree"
    with pytest.raises(ConfigError) as caught:
        check_degree(odd, Variant.SHARDED, 2)
    assert [p.field for p in caught.value.problems] == ["linear_num_key_heads"]


def read_shape(name: str) -> Qwen35Config:
    return parse_config(json.dumps(config(SHAPES[name])).encode())


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_weights_are_those_of_an_independent_table(name: str) -> None:
    program = qwen35_program(read_shape(name), Variant.SHARDED, 1)
    assert {weight.name: weight.shape for weight in program.weights} == text_tensors(SHAPES[name])


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_slices_cover_every_index_exactly_once(name: str, variant: Variant) -> None:
    shape = read_shape(name)
    for world_size in working_degrees(shape, variant):
        for weight in qwen35_program(shape, variant, world_size).weights:
            if isinstance(weight.rule, Replicated):
                continue
            held: list[int] = []
            for rank in range(world_size):
                piece = cut(weight.rule, weight.shape, rank, world_size)
                for index_range in piece.ranges:
                    held.extend(range(index_range.start, index_range.stop))
                axis = piece.axis
            assert axis is not None
            assert sorted(held) == list(range(weight.shape[axis])), weight.name


@given(
    ratio=st.integers(1, 3), key_heads=st.integers(1, 8), dims=st.tuples(*[st.integers(1, 5)] * 2)
)
def test_value_heads_of_a_rank_read_key_heads_of_the_same_rank(
    ratio: int, key_heads: int, dims: tuple[int, int]
) -> None:
    key_dim, value_dim = dims
    value_heads = ratio * key_heads
    model = Qwen35Config(
        **{
            **{field: getattr(FOUR_B, field) for field in FOUR_B.__dataclass_fields__},
            "linear_num_key_heads": key_heads,
            "linear_num_value_heads": value_heads,
            "linear_key_head_dim": key_dim,
            "linear_value_head_dim": value_dim,
        }
    )
    weight_name = "layers.0.linear_attn.in_proj_qkv.weight"
    for world_size in working_degrees(model, Variant.SHARDED):
        program = qwen35_program(model, Variant.SHARDED, world_size)
        (weight,) = [weight for weight in program.weights if weight.name == weight_name]
        for rank in range(world_size):
            query, key, value = cut(weight.rule, weight.shape, rank, world_size).ranges
            heads = range(query.start // key_dim, query.stop // key_dim)
            assert key.start - query.start == key_heads * key_dim
            first = (value.start - 2 * key_heads * key_dim) // value_dim
            last = (value.stop - 2 * key_heads * key_dim) // value_dim - 1
            assert {first // ratio, last // ratio} <= set(heads)
