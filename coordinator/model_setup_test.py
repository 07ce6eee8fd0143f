"""What can't be run is refused with one sentence before anything starts; what can, is decided."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.model_cases import (
    FOUR_B,
    MACHINE,
    SMALL,
    WEIGHTS,
    WeightFile,
    header_bytes,
    large_model,
    model_run,
    small_model,
)
from coordinator.model_setup import Machine, set_up
from errors import ConfigError
from program.qwen35_memory import WeightsDtype

FOUR_SHARDS = replace(SMALL, shards=4)
DOWN = "model.layers.0.mlp.down_proj.weight"
NORM = "model.norm.weight"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("sound") / "model")


@pytest.fixture
def model(sound: Path, tmp_path: Path) -> Path:
    """A copy that a test may break."""
    return Path(shutil.copytree(sound, tmp_path / "model"))


def refused(folder: Path, machine: Machine = MACHINE, **fields: object) -> ConfigError:
    with pytest.raises(ConfigError) as refusal:
        set_up(model_run(folder, **fields), lambda: machine)
    sentence = refusal.value.diagnostics()
    assert refusal.value.exit_code == 2
    assert "\n" not in sentence
    assert len(sentence.replace(str(folder), "")) < 500
    return refusal.value


def change(folder: Path, edit: Callable[[WeightFile], object]) -> None:
    file = WeightFile.read(folder / WEIGHTS)
    edit(file)
    file.write(folder / WEIGHTS)


def in_header(name: str, **fields: object) -> Callable[[WeightFile], object]:
    return lambda file: file.header[name].update(fields)


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["config.json", WEIGHTS])
def test_missing_files(model: Path, name: str) -> None:
    (model / name).unlink()
    assert refused(model).code == "checkpoint.unreadable"


@pytest.mark.parametrize("where", ["missing", "model/config.json", "model/config.json/below"])
def test_folders_that_cannot_be_read(model: Path, where: str) -> None:
    assert refused(model.parent / where).code == "checkpoint.unreadable"


@pytest.mark.parametrize("name", ["config.json", WEIGHTS])
def test_folders_in_the_place_of_files(model: Path, name: str) -> None:
    (model / name).unlink()
    (model / name).mkdir()
    assert refused(model).code == "checkpoint.unreadable"


@pytest.mark.parametrize("name", ["config.json", WEIGHTS])
def test_pipes_in_the_place_of_files(model: Path, name: str) -> None:
    """Nobody waits for a writer."""
    (model / name).unlink()
    os.mkfifo(model / name)
    assert refused(model).code == "checkpoint.unreadable"


def test_a_name_that_no_file_can_have(model: Path) -> None:
    assert refused(model / ("x" * 300)).code == "checkpoint.unreadable"


def test_a_missing_shard_of_the_index(tmp_path: Path) -> None:
    folder = small_model(tmp_path / "model", FOUR_SHARDS)
    shard = sorted(folder.glob("*.safetensors"))[2]
    shard.unlink()
    refusal = refused(folder)
    assert refusal.code == "checkpoint.unreadable"
    assert refusal.problems[0].field == shard.name


EIB_8 = (1 << 63).to_bytes(8, "little")
TINY_TENSOR = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x01",
        EIB_8 + b"{}",
        b"\xff" * 8,
        (100).to_bytes(8, "little") + b"{}",
        (2).to_bytes(8, "little") + b"[]",
        header_bytes({})[:8] + b"{,",
        header_bytes({f"t{i}": TINY_TENSOR for i in range(70_000)}),
    ],
    ids=["empty", "a byte", "8 EiB", "2^64", "longer than file", "array", "no JSON", "70,000"],
)
def test_hostile_headers(model: Path, content: bytes) -> None:
    (model / WEIGHTS).write_bytes(content)
    assert refused(model).code == "checkpoint.header"


def test_a_million_tensors_are_refused_by_the_length_of_their_header(model: Path) -> None:
    entry = json.dumps(TINY_TENSOR)
    header = "{" + ",".join(f'"{i}":{entry}' for i in range(1_000_000)) + "}"
    content = len(header).to_bytes(8, "little") + header.encode("ascii")
    (model / WEIGHTS).write_bytes(content)
    assert refused(model).code == "checkpoint.header"


def test_a_truncated_file(model: Path) -> None:
    path = model / WEIGHTS
    path.write_bytes(path.read_bytes()[:-4])
    assert refused(model).code == "checkpoint.header"


def overlap(file: WeightFile) -> None:
    begin, end = file.header[NORM]["data_offsets"]
    file.header[NORM]["data_offsets"] = [begin - 4, end - 4]


def retype(file: WeightFile) -> None:
    """As many bytes, so that only the type is wrong."""
    file.header[DOWN]["dtype"] = "I32"


def drop_last(file: WeightFile) -> None:
    name = max(file.header, key=lambda n: file.header[n].get("data_offsets", [0])[0])
    del file.data[file.place(name)]
    del file.header[name]


def rename(file: WeightFile) -> None:
    file.header["model.layers.9.mlp.down_proj.weight"] = file.header.pop(DOWN)


@pytest.mark.parametrize(
    ("edit", "code"),
    [
        (overlap, "header"),
        (in_header(DOWN, shape=[96, 64]), "shape"),
        (in_header(DOWN, shape=[64 * 96]), "shape"),
        (in_header(DOWN, shape=[64, 95]), "header"),
        (retype, "dtype"),
        (drop_last, "names"),
        (rename, "names"),
    ],
    ids=["overlap", "transposed", "flat", "bytes", "dtype", "missing", "unknown"],
)
def test_weights_that_are_not_those_of_the_model(
    model: Path, edit: Callable[[WeightFile], object], code: str
) -> None:
    change(model, edit)
    assert refused(model).code == f"checkpoint.{code}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quantization_config", {"bits": 4}),
        ("hidden_act", "gelu"),
        ("layer_types", ["sliding_attention"] * 4),
        ("vocab_size", "96"),
        ("linear_num_value_heads", 6),
    ],
)
def test_a_config_that_is_not_computed_here(model: Path, field: str, value: object) -> None:
    path = model / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text("ascii")), field: value}))
    refusal = refused(model)
    assert refusal.code == "config.invalid"
    assert refusal.problems[0].field.startswith(field)


# --- ranks, devices, memory -------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "listed"), [(3, "1, 2, 4"), (8, "1, 2, 4"), (5, "1, 2, 4")])
def test_a_refused_degree_lists_those_that_work(model: Path, ranks: int, listed: str) -> None:
    refusal = refused(model, ranks=ranks)
    assert refusal.code == "config.degree"
    assert refusal.problems[-1].rule.endswith(f": {listed}")
    assert refusal.message.count(listed) == 1


def test_degrees_are_judged_before_the_weights_are_looked_at(model: Path) -> None:
    (model / WEIGHTS).unlink()
    assert refused(model, ranks=3).code == "config.degree"


@pytest.mark.parametrize("ordinals", ["0,0", "0,16", "0,2", "0", "0,1,0"])
def test_devices_that_cannot_be(model: Path, ordinals: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        set_up(model_run(model, model__device_ordinals=ordinals), lambda: MACHINE)
    assert refusal.value.exit_code == 2


def test_devices_are_those_this_process_may_use(model: Path) -> None:
    only = Machine(4 << 30, frozenset({5}))
    assert refused(model, only, model__device_ordinals="0,1").code == "config.devices"
    two = Machine(4 << 30, frozenset({5, 3}))
    setup = set_up(model_run(model, model__device_ordinals="1,0"), lambda: two)
    assert [order.cpus for order in setup.loads] == [(5,), (3,)]


@pytest.mark.parametrize("ranks", [1, 2])
def test_captured_execution_does_not_exist(model: Path, ranks: int) -> None:
    with pytest.raises(ConfigError) as refusal:
        model_run(model, ranks=ranks, model__execution="captured")
    assert [problem.field for problem in refusal.value.problems] == ["model.execution"]


def test_too_little_memory_names_the_rank(model: Path) -> None:
    refusal = refused(model, model__rank_memory_bytes="4000000000,1000000")
    assert refusal.code == "config.capacity"
    assert refusal.problems[0].field == "rank_memory_bytes[1]"


def test_a_step_whose_partial_is_larger_than_a_frame(model: Path) -> None:
    fields: dict[str, Any] = {"model__max_step_tokens": 65_537}
    assert refused(model, **fields).problems[0].field == "model.max_step_tokens"


# --- what is decided --------------------------------------------------------------------------


@pytest.mark.parametrize("positions", [None, 1, 17, 10**9])
def test_memory_is_set_aside_for_the_longest_request_only(
    model: Path, positions: int | None
) -> None:
    setup = set_up(model_run(model), lambda: MACHINE, positions)
    longest = min(positions or 16384, 16384)
    limits = setup.capacity.limits
    assert (limits.slots, limits.context_tokens) == (1, longest)
    assert limits.pages == -(-longest // limits.page_tokens)


def test_every_rank_gets_the_same_limits(model: Path) -> None:
    fields: dict[str, Any] = {"model__rank_memory_bytes": "4000000000,300000000"}
    setup = set_up(model_run(model, **fields), lambda: MACHINE)
    assert {order.limits for order in setup.loads} == {setup.capacity.limits}


@pytest.mark.parametrize("held", list(WeightsDtype))
def test_options_reach_the_load_orders(model: Path, held: WeightsDtype) -> None:
    fields = {"model__weights_dtype": held.value, "model__check_weights": "true"}
    for order in set_up(model_run(model, **fields), lambda: MACHINE).loads:
        assert (order.weights_dtype, order.check_weights) == (held, True)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_4b_model_fits_a_machine_of_24_gib(tmp_path: Path, ranks: int) -> None:
    """Held in bfloat16, as stored, with a request of 4,096 positions."""
    folder = large_model(tmp_path / "model", FOUR_B)
    machine = Machine(24 << 30, frozenset({0, 1}))
    setup = set_up(model_run(folder, ranks=ranks), lambda: machine, 4096)
    budgets = setup.capacity.ranks
    held = sum(budget.weight_bytes for budget in budgets)
    replicas = (ranks - 1) * 248320 * 2560 * 2
    assert held - replicas == pytest.approx(4_205_751_296 * 2, rel=0.001)
    assert all(setup.capacity.unused_bytes(rank) > 0 for rank in range(ranks))
    wide = {"model__weights_dtype": "float32", "model__rank_memory_bytes": (24 << 30) // ranks}
    set_up(model_run(folder, ranks=ranks, **wide), lambda: machine, 4096)
