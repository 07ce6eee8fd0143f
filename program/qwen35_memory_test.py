from __future__ import annotations

from dataclasses import replace
from math import prod
from pathlib import Path

import pytest

from program.checkpoint import StoredDtype, open_checkpoint
from program.qwen35 import Variant, qwen35_program
from program.qwen35_config import read_config
from program.qwen35_memory import WeightsDtype, held_dtypes, held_item_bytes, matrix_groups
from program.spec import Dtype
from testdata.golden.seeded_checkpoint import write_checkpoint
from testdata.golden.shapes import BASE


@pytest.mark.parametrize(
    ("stored", "choice", "held"),
    [
        ("float32", WeightsDtype.AUTO, StoredDtype.FLOAT32),
        ("float32", WeightsDtype.FLOAT32, StoredDtype.FLOAT32),
        ("float32", WeightsDtype.BFLOAT16, StoredDtype.BFLOAT16),
        ("bfloat16", WeightsDtype.AUTO, StoredDtype.BFLOAT16),
        ("bfloat16", WeightsDtype.FLOAT32, StoredDtype.FLOAT32),
        ("bfloat16", WeightsDtype.BFLOAT16, StoredDtype.BFLOAT16),
    ],
)
@pytest.mark.parametrize("layout", ["public", "text"])
def test_matrices_follow_the_option_and_vectors_the_compute_dtype(
    tmp_path: Path, stored: str, choice: WeightsDtype, held: StoredDtype, layout: str
) -> None:
    write_checkpoint(tmp_path, replace(BASE, dtype=stored, layout=layout, tied=False), 1)
    config = read_config(tmp_path)
    for compute in Dtype:
        program = qwen35_program(config, Variant.SHARDED, 2, compute)
        dtypes = held_dtypes(config, open_checkpoint(tmp_path, program.weights), choice)
        assert set(dtypes.values()) == {held}
        matrices = {w.name for w in program.weights if len(w.shape) == 2}
        assert set(dtypes) == matrices
        items = held_item_bytes(program, dtypes)
        assert set(items) == {weight.name for weight in program.weights}
        for name, item in items.items():
            assert item == (held.item_bytes if name in matrices else compute.item_bytes)


def test_a_group_stored_in_two_types_is_held_in_float32(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, replace(BASE, dtype="bfloat16"), 1)
    config = read_config(tmp_path)
    program = qwen35_program(config, Variant.SHARDED, 1)
    checkpoint = open_checkpoint(tmp_path, program.weights)
    changed = "layers.0.linear_attn.in_proj_a.weight"
    tensors = {
        name: replace(stored, dtype=StoredDtype.FLOAT16) if name == changed else stored
        for name, stored in checkpoint.tensors.items()
    }
    dtypes = held_dtypes(config, replace(checkpoint, tensors=tensors), WeightsDtype.AUTO)
    groups = {names: {dtypes[name] for name in names} for names in matrix_groups(config)}
    for names, held in groups.items():
        expected = StoredDtype.FLOAT32 if changed in names else StoredDtype.BFLOAT16
        assert held == {expected}


def test_groups_hold_nearly_all_bytes_of_a_model(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, BASE, 1)
    config = read_config(tmp_path)
    program = qwen35_program(config, Variant.SHARDED, 1)
    grouped = {name for names in matrix_groups(config) for name in names}
    total = sum(prod(weight.shape) for weight in program.weights)
    matrices = sum(prod(weight.shape) for weight in program.weights if weight.name in grouped)
    assert matrices > 0.97 * total
