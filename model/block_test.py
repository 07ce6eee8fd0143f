"""The executor against the scalar reference, the oracle, other rank counts and itself."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from errors import MisuseError
from model import block_scalar as scalar
from model.block import BlockExecutor
from model.block_lockstep import executors, operand, shards, step
from oracle import block as oracle
from program.block import WORLD_SIZES, block_spec

SHAPES = [(batch, sequence) for batch in (1, 2) for sequence in range(1, 8)]
VECTORS = json.loads(Path("testdata/vectors/block.json").read_text("ascii"))["vectors"]
SPEC_TEXT = Path("docs/spec/program.md").read_text("utf-8")
VECTOR_IDS = [vector["id"] for vector in VECTORS]


def test_the_oracle_and_the_product_make_the_same_tensors() -> None:
    for seed in (0, 1, 2**53 - 1):
        spec, truth = block_spec(1), oracle.weights(seed)
        assert {name: array.tolist() for name, array in shards(spec, seed, 0).items()} == truth
        for batch, sequence in SHAPES:
            x = operand(seed, batch, sequence)
            assert x.tolist() == oracle.input_tensor(seed, batch, sequence)


@pytest.mark.parametrize(("batch", "sequence"), SHAPES)
def test_outputs_are_the_same_for_every_rank_count(batch: int, sequence: int) -> None:
    for seed in range(8):
        x = operand(seed, batch, sequence)
        outputs = {step(executors(world_size, seed), x) for world_size in WORLD_SIZES}
        assert len(outputs) == 1


@pytest.mark.parametrize("order", ["pairwise", "rank"])
@pytest.mark.parametrize(("batch", "sequence"), SHAPES)
def test_outputs_are_near_the_truth(batch: int, sequence: int, order: str) -> None:
    for seed in range(4):
        output = step(executors(4, seed), operand(seed, batch, sequence), order)
        judgement = oracle.judge(output, seed, batch, sequence)
        assert judgement.passed
        assert judgement.max_abs_error < 4e-7
        assert judgement.relative_l2_error < 4e-7


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize(("batch", "sequence"), [(1, 1), (1, 3), (2, 5), (1, 9)])
def test_partials_are_those_of_the_scalar_reference(
    world_size: int, batch: int, sequence: int
) -> None:
    spec, x = block_spec(world_size), operand(5, batch, sequence)
    for rank, executor in enumerate(executors(world_size, 5)):
        lists = {name: array.tolist() for name, array in shards(spec, 5, rank).items()}
        executor.begin(x)
        for stage, reference in enumerate((scalar.attention_stage, scalar.mlp_stage)):
            wanted = np.array(reference(x.tolist(), lists)["partial"], np.float32)
            assert executor.partial(stage).tobytes() == wanted.tobytes()


@pytest.mark.parametrize("vector", VECTORS, ids=VECTOR_IDS)
def test_output_vectors(vector: dict[str, object]) -> None:
    tensors = vector["tensors"]
    assert isinstance(tensors, list)
    seed, batch, sequence = (int(str(vector[key])) for key in ("seed", "batch", "sequence"))
    for world_size in WORLD_SIZES:
        output = step(executors(world_size, seed), operand(seed, batch, sequence))
        assert hashlib.sha256(output).hexdigest() == tensors[-1]["sha256"]


def test_the_document_states_the_vectors() -> None:
    for entry in VECTORS[0]["tensors"]:
        rank = "both" if entry["rank"] is None else entry["rank"]
        digest = entry["sha256"][:16]
        row = f"| {entry['stage']} | {rank} | `{entry['tensor']}` | {entry['shape']} | `{digest}` |"
        assert row in SPEC_TEXT
    for vector in VECTORS[1:]:
        assert f"`{vector['tensors'][0]['sha256']}`" in SPEC_TEXT


def test_vectors_of_every_intermediate_tensor() -> None:
    vector = VECTORS[0]
    seed, batch, sequence, ranks = (vector[key] for key in ("seed", "batch", "sequence", "ranks"))
    spec, x = block_spec(ranks), operand(seed, batch, sequence).tolist()
    local = [
        {name: array.tolist() for name, array in shards(spec, seed, rank).items()}
        for rank in range(ranks)
    ]
    made: dict[tuple[object, ...], list[Any]] = {("input", "x"): x}
    for stage, reference, after in (
        ("attention", scalar.attention_stage, "x1"),
        ("mlp", scalar.mlp_stage, "y"),
    ):
        results = [reference(x, weights) for weights in local]
        for rank, steps in enumerate(results):
            made |= {(stage, name, rank): tensor for name, tensor in steps.items()}
        made[stage, "normed"] = results[0]["normed"]
        total = scalar.add(*(steps["partial"] for steps in results))
        x = scalar.add(x, total)
        made |= {(stage, "total"): total, (stage, after): x}
    for entry in vector["tensors"]:
        key = (entry["stage"], entry["tensor"])
        array = np.array(made[key if entry["rank"] is None else (*key, entry["rank"])], "<f4")
        assert list(array.shape) == entry["shape"]
        assert array.tobytes().hex() == entry["bytes"]
        assert hashlib.sha256(array.tobytes()).hexdigest() == entry["sha256"]


def test_an_executor_runs_many_steps_of_changing_shape() -> None:
    group = executors(2, 6)
    for batch, sequence in [(2, 7), (1, 1), (2, 7), (1, 7), (2, 3), (2, 7)]:
        x = operand(6, batch, sequence)
        assert step(group, x) == step(executors(2, 6), x)


def test_new_weights_replace_the_old_ones() -> None:
    group, x = executors(1, 1), operand(1, 1, 4)
    step(group, x)
    group[0].load(shards(block_spec(1), 2, 0))
    assert step(group, x) == step(executors(1, 2), x)


@pytest.mark.parametrize(("batch", "sequence"), [(64, 16), (6, 200), (7, 100), (1, 512)])
def test_a_sequence_does_not_depend_on_its_batch(batch: int, sequence: int) -> None:
    """Large batches are computed in groups; a group must not show in the result."""
    x = operand(7, batch, sequence)
    output = np.frombuffer(step(executors(4, 7), x), "<f4").reshape(x.shape)
    for index in {0, batch // 2, batch - 1}:
        alone = step(executors(4, 7), x[index : index + 1])
        assert output[index].tobytes() == alone


@pytest.mark.parametrize("length", range(1, 7))
def test_a_token_does_not_depend_on_later_tokens(length: int) -> None:
    x = operand(8, 2, 7)
    whole = np.frombuffer(step(executors(2, 8), x), "<f4").reshape(x.shape)
    prefix = np.frombuffer(step(executors(2, 8), x[:, :length]), "<f4")
    assert whole[:, :length].tobytes() == prefix.tobytes()


def test_nothing_that_was_handed_over_is_written() -> None:
    group, x = executors(1, 9), operand(9, 2, 7).copy()
    before = x.tobytes()
    group[0].begin(x)
    first = group[0].partial(0)
    kept = first.tobytes()
    group[0].reduced(0, first)
    group[0].partial(1)
    assert x.tobytes() == before
    assert first.tobytes() == kept


def test_calls_out_of_order_are_our_own_bug() -> None:
    spec, x = block_spec(1), operand(1, 1, 1)
    fresh = BlockExecutor(spec, 0)
    with pytest.raises(MisuseError):
        fresh.begin(x)
    [loaded] = executors(1, 1)
    with pytest.raises(MisuseError):
        loaded.partial(0)
    loaded.begin(x)
    loaded.finish()
    with pytest.raises(MisuseError):
        loaded.finish()


def test_other_weights_than_the_agreed_ones_are_our_own_bug() -> None:
    spec = block_spec(2)
    good = shards(spec, 1, 0)
    for bad in (
        {name: array for name, array in good.items() if name != "wq"},
        good | {"extra": good["wq"]},
        good | {"wo": good["wo"].T},
    ):
        with pytest.raises(MisuseError):
            BlockExecutor(spec, 0).load(bad)
