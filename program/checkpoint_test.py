from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from errors import ConfigError
from program.checkpoint import (
    INDEX_FILE,
    SINGLE_FILE,
    Checkpoint,
    Skipped,
    StoredDtype,
    open_checkpoint,
)
from program.partition import Replicated
from program.qwen35 import Variant, qwen35_program
from program.qwen35_config import read_config
from program.spec import WeightSpec
from testdata.golden.seeded_checkpoint import write_checkpoint
from testdata.golden.shapes import BASE
from testdata.golden.tensor_shapes import skipped_tensors, text_tensors

WEIGHTS = (
    WeightSpec("embed_tokens.weight", (4, 2), Replicated()),
    WeightSpec("norm.weight", (2,), Replicated()),
)
NAMED = {"model.embed_tokens.weight": ("F32", [4, 2]), "model.norm.weight": ("BF16", [2])}
Tensors = dict[str, tuple[str, list[int]]]


def write_file(path: Path, tensors: Tensors) -> None:
    header: dict[str, object] = {}
    end = 0
    for name, (dtype, shape) in sorted(tensors.items(), key=lambda item: item[1][0] != "F32"):
        size = {"F32": 4, "BF16": 2, "F16": 2, "F64": 8, "I32": 4, "U8": 1}[dtype]
        for extent in shape:
            size *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(end))


def write_sharded(folder: Path, shards: dict[str, Tensors], index: object = None) -> None:
    for shard, tensors in shards.items():
        write_file(folder / shard, tensors)
    placed = {name: shard for shard, tensors in shards.items() for name in tensors}
    document = {"weight_map": placed} if index is None else index
    (folder / INDEX_FILE).write_text(json.dumps(document), encoding="utf-8")


def code_of(folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        open_checkpoint(folder, WEIGHTS)
    return caught.value.code


@pytest.mark.parametrize("layout", ["public", "text"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("tied", [True, False])
def test_claims_every_tensor_of_both_layouts(
    tmp_path: Path, layout: str, dtype: str, tied: bool
) -> None:
    shape = replace(BASE, layout=layout, dtype=dtype, tied=tied)
    write_checkpoint(tmp_path, shape, 1)
    program = qwen35_program(read_config(tmp_path), Variant.SHARDED, 1)
    checkpoint = open_checkpoint(tmp_path, program.weights)
    assert set(checkpoint.tensors) == set(text_tensors(shape))
    skipped = skipped_tensors(shape) if layout == "public" else {}
    assert checkpoint.skipped_tensors == {
        group: sum(name.startswith(group.value) for name in skipped) for group in Skipped
    }
    assert (checkpoint.skipped_bytes > 0) == (layout == "public")
    stored = checkpoint.tensors["layers.0.linear_attn.A_log"].dtype
    expected = dtype == "bfloat16" and layout == "text"
    assert stored is (StoredDtype.BFLOAT16 if expected else StoredDtype.FLOAT32)


@pytest.mark.parametrize("prefix", ["model.", "model.language_model."])
def test_either_prefix_is_read_but_not_both(tmp_path: Path, prefix: str) -> None:
    named: Tensors = {
        f"{prefix}embed_tokens.weight": ("F16", [4, 2]),
        f"{prefix}norm.weight": ("F32", [2]),
    }
    write_file(tmp_path / SINGLE_FILE, named)
    checkpoint = open_checkpoint(tmp_path, WEIGHTS)
    assert isinstance(checkpoint, Checkpoint)
    assert checkpoint.tensors["embed_tokens.weight"].dtype is StoredDtype.FLOAT16
    mixed: Tensors = {
        "model.embed_tokens.weight": ("F32", [4, 2]),
        "model.language_model.norm.weight": ("F32", [2]),
    }
    write_file(tmp_path / SINGLE_FILE, mixed)
    assert code_of(tmp_path) == "checkpoint.names"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"model.norm.weight": None}, "checkpoint.names"),
        ({"model.embed_tokens.weight": None, "model.norm.weight": None}, "checkpoint.names"),
        ({"model.other.weight": ("F32", [2])}, "checkpoint.names"),
        ({"lm_head.weight": ("F32", [4, 2])}, "checkpoint.names"),
        ({"norm.weight": ("F32", [2])}, "checkpoint.names"),
        ({"model.language_model.norm.weight": ("F32", [2])}, "checkpoint.names"),
        ({"model.language_model.layers.0.x": ("F32", [2])}, "checkpoint.names"),
        ({"mode.visual.x": ("F32", [2])}, "checkpoint.names"),
        ({"model.norm.weight": ("F32", [1, 2])}, "checkpoint.shape"),
        ({"model.norm.weight": ("F32", [3])}, "checkpoint.shape"),
        ({"model.embed_tokens.weight": ("F32", [2, 4])}, "checkpoint.shape"),
        ({"model.norm.weight": ("F64", [2])}, "checkpoint.dtype"),
        ({"model.norm.weight": ("I32", [2])}, "checkpoint.dtype"),
    ],
)
def test_a_wrong_set_of_tensors_is_refused(
    tmp_path: Path, change: dict[str, tuple[str, list[int]] | None], code: str
) -> None:
    named = {**NAMED, **change}
    kept = {name: tensor for name, tensor in named.items() if tensor is not None}
    write_file(tmp_path / SINGLE_FILE, kept)
    assert code_of(tmp_path) == code


def test_skipped_groups_may_hold_what_cannot_be_loaded(tmp_path: Path) -> None:
    extra: Tensors = {"model.visual.x": ("I32", [3]), "mtp.fc.weight": ("U8", [5])}
    write_file(tmp_path / SINGLE_FILE, {**NAMED, **extra})
    checkpoint = open_checkpoint(tmp_path, WEIGHTS)
    assert checkpoint.skipped_tensors == {Skipped.VISION: 1, Skipped.MTP: 1}
    assert checkpoint.skipped_bytes == 17


def _split() -> dict[str, Tensors]:
    first, second = NAMED.items()
    return {"a.safetensors": dict([first]), "b.safetensors": dict([second])}


def test_shards_are_read_through_the_index(tmp_path: Path) -> None:
    write_sharded(tmp_path, _split())
    checkpoint = open_checkpoint(tmp_path, WEIGHTS)
    assert {stored.file.name for stored in checkpoint.tensors.values()} == set(_split())


@pytest.mark.parametrize(
    "index",
    [
        [],
        {},
        {"weight_map": []},
        {"weight_map": {}},
        {"weight_map": {"a": 1}},
        {"weight_map": {"a": "../a.safetensors"}},
        {"weight_map": {"a": "sub/a.safetensors"}},
        {"weight_map": {"a": "/a.safetensors"}},
        {"weight_map": {"a": "a.bin"}},
        {"weight_map": {"a": ".safetensors"}},
        {"weight_map": {"model.norm.weight": "a.safetensors"}},
        {"weight_map": dict.fromkeys(NAMED, "a.safetensors")},
        {"weight_map": dict.fromkeys(NAMED, "a.safetensors"), "extra": 1},
    ],
)
def test_an_index_that_is_not_what_the_files_hold_is_refused(tmp_path: Path, index: object) -> None:
    write_sharded(tmp_path, _split(), index)
    assert code_of(tmp_path) == "checkpoint.index"


def test_a_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    shards = _split()
    shards["a.safetensors"]["mtp.x"] = ("F32", [1])
    shards["b.safetensors"]["model.embed_tokens.weight"] = ("F32", [4, 2])
    write_sharded(tmp_path, shards)
    assert code_of(tmp_path) == "checkpoint.index"


def test_missing_files_are_refused(tmp_path: Path) -> None:
    assert code_of(tmp_path) == "checkpoint.unreadable"
    assert code_of(tmp_path / "nowhere") == "checkpoint.unreadable"
    write_sharded(tmp_path, _split())
    (tmp_path / "b.safetensors").unlink()
    assert code_of(tmp_path) == "checkpoint.unreadable"


def test_a_single_file_beside_an_index_is_ambiguous(tmp_path: Path) -> None:
    write_sharded(tmp_path, _split())
    write_file(tmp_path / SINGLE_FILE, dict(NAMED))
    assert code_of(tmp_path) == "checkpoint.index"
