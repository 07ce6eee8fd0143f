"""The block's values: shapes, order, limits, payloads and the payload formula."""

from __future__ import annotations

import struct

import pytest

from errors import ConfigError
from program.block import (
    BATCH_MAX,
    HIDDEN_SIZE,
    SEQUENCE_MAX,
    WORLD_SIZES,
    block_payload_bytes,
    block_spec,
    input_payload,
    operand_shape,
    weight_payload,
)
from program.partition import Columns
from program.spec import Dtype, Loading

PAYLOAD_BYTES_MAX = 16_777_216


def test_the_weights_in_the_order_they_travel() -> None:
    spec = block_spec(2)
    assert [(weight.name, weight.shape, weight.local_shape(1, 2)) for weight in spec.weights] == [
        ("wq", (16, 16), (8, 16)),
        ("wk", (8, 16), (4, 16)),
        ("wv", (8, 16), (4, 16)),
        ("wo", (16, 16), (16, 8)),
        ("w_gate", (24, 16), (12, 16)),
        ("w_up", (24, 16), (12, 16)),
        ("w_down", (16, 24), (16, 12)),
    ]


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_the_spec(world_size: int) -> None:
    spec = block_spec(world_size)
    assert (spec.name, spec.world_size, spec.hidden_size) == ("block", world_size, 16)
    assert spec.phases == ("attention", "mlp")
    assert spec.loading is Loading.WIRE
    assert spec.artifact_ranks == tuple(range(world_size))
    assert (spec.folded, spec.partial_dtype, spec.arithmetic) == (False, Dtype.FLOAT32, "exact-1")


@pytest.mark.parametrize("world_size", [-1, 0, 3, 5, 6, 8])
def test_other_degrees_are_refused_and_the_working_ones_named(world_size: int) -> None:
    for refused in (block_spec, lambda degree: block_payload_bytes(degree, 1, 1)):
        with pytest.raises(ConfigError) as refusal:
            refused(world_size)
        assert refusal.value.code == "config.degree"
        (problem,) = refusal.value.problems
        assert problem.field == "world_size"
        assert problem.rule.endswith("1, 2, 4")


@pytest.mark.parametrize(("world_size", "expected"), [(1, 13_056), (2, 18_432), (4, 29_184)])
def test_check_values_of_the_payload_formula(world_size: int, expected: int) -> None:
    assert block_payload_bytes(world_size, 2, 7) == expected


@pytest.mark.parametrize(("world_size", "elements"), [(1, 1920), (2, 960), (4, 480)])
def test_check_values_of_the_elements_per_rank(world_size: int, elements: int) -> None:
    spec = block_spec(world_size)
    for rank in range(world_size):
        sizes = [len(weight_payload(1, weight, rank, world_size)) // 4 for weight in spec.weights]
        assert sum(sizes) == elements


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize(("batch", "sequence"), [(1, 1), (2, 3), (64, 2)])
def test_the_formula_counts_the_payloads(world_size: int, batch: int, sequence: int) -> None:
    spec = block_spec(world_size)
    weights = sum(
        len(weight_payload(1, weight, rank, world_size))
        for rank in range(world_size)
        for weight in spec.weights
    )
    tensors = 6 * world_size * len(input_payload(1, batch, sequence))
    assert weights + tensors == block_payload_bytes(world_size, batch, sequence)


def rows_of(data: bytes, shape: tuple[int, ...]) -> list[tuple[float, ...]]:
    return list(struct.iter_unpack(f"<{shape[1]}f", data))


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_the_ranks_slices_are_the_whole_weight(world_size: int) -> None:
    for weight in block_spec(world_size).weights:
        local = [
            rows_of(
                weight_payload(4, weight, rank, world_size), weight.local_shape(rank, world_size)
            )
            for rank in range(world_size)
        ]
        if isinstance(weight.rule, Columns):
            joined = [sum(parts, ()) for parts in zip(*local, strict=True)]
        else:
            joined = [row for rows in local for row in rows]
        assert joined == rows_of(weight_payload(4, weight, 0, 1), weight.shape)


def test_the_limits_fit_the_wire() -> None:
    largest = operand_shape(BATCH_MAX, SEQUENCE_MAX)
    assert largest == (64, 512, HIDDEN_SIZE)
    assert 4 * largest[0] * largest[1] * largest[2] <= PAYLOAD_BYTES_MAX


@pytest.mark.parametrize(
    ("batch", "sequence", "fields"),
    [
        (0, 1, ["batch"]),
        (65, 1, ["batch"]),
        (1, 0, ["sequence"]),
        (1, 513, ["sequence"]),
        (-1, 600, ["batch", "sequence"]),
    ],
)
def test_shapes_beyond_the_limits_are_refused_all_at_once(
    batch: int, sequence: int, fields: list[str]
) -> None:
    for refused in (
        lambda: operand_shape(batch, sequence),
        lambda: input_payload(1, batch, sequence),
        lambda: block_payload_bytes(1, batch, sequence),
    ):
        with pytest.raises(ConfigError) as refusal:
            refused()
        assert [problem.field for problem in refusal.value.problems] == fields
