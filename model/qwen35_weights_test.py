from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from errors import ConfigError
from model.linear import Linear
from model.ops import Array
from model.qwen35_weights import (
    AttentionWeights,
    LinearAttentionWeights,
    LoadReport,
    Qwen35Weights,
    load_weights,
)
from program.capacity import weight_bytes
from program.checkpoint import Skipped, open_checkpoint
from program.qwen35 import Variant, qwen35_program, working_degrees
from program.qwen35_config import read_config
from program.qwen35_memory import WeightsDtype, held_dtypes, held_item_bytes
from testdata.golden.seeded_checkpoint import tensor, write_checkpoint
from testdata.golden.shapes import BASE, SHAPES, Shape
from testdata.golden.tensor_shapes import text_tensors
from tools.python.tiers import mostly_exhaustive

SEED = 3


def load(
    folder: Path,
    variant: Variant,
    world_size: int,
    rank: int,
    *,
    weights_dtype: WeightsDtype = WeightsDtype.AUTO,
    check_values: bool = False,
) -> tuple[Qwen35Weights, LoadReport]:
    config = read_config(folder)
    program = qwen35_program(config, variant, world_size)
    checkpoint = open_checkpoint(folder, program.weights)
    return load_weights(
        config,
        program,
        checkpoint,
        rank,
        weights_dtype=weights_dtype,
        check_values=check_values,
    )


def whole(linear: Linear) -> Array:
    return linear.rows(np.arange(linear.out_features))


def expected_slices(shape: Shape, variant: Variant, rank: int, world_size: int) -> dict[str, Array]:
    """What the rank has to hold, cut head by head without the engine's index arithmetic."""
    result: dict[str, Array] = {}
    ranks = world_size if variant is Variant.SHARDED else 1
    place = rank if variant is Variant.SHARDED else 0
    keys, values = shape.key_heads * shape.key_dim, shape.value_heads * shape.value_dim

    def part(array: Array, count: int, index: int, axis: int = 0) -> Array:
        piece: Array = np.split(array, count, axis)[index]
        return piece

    for name, size in text_tensors(shape).items():
        full: Array = tensor(shape, SEED, name, size)
        leaf = re.sub(r"^layers\.\d+\.", "", name)
        match leaf.removesuffix(".weight"):
            case "self_attn.q_proj":
                heads = full.reshape(shape.heads, 2 * shape.head_dim, -1)
                full = part(heads, world_size, rank).reshape(-1, shape.hidden)
            case "self_attn.k_proj" | "self_attn.v_proj" | "mlp.gate_proj" | "mlp.up_proj":
                full = part(full, world_size, rank)
            case "self_attn.o_proj" | "mlp.down_proj":
                full = part(full, world_size, rank, axis=1)
            case "linear_attn.in_proj_qkv" | "linear_attn.conv1d":
                sections = (full[:keys], full[keys : 2 * keys], full[2 * keys :])
                full = np.concatenate([part(section, ranks, place) for section in sections])
                assert len(full) == (2 * keys + values) // ranks
            case (
                "linear_attn.in_proj_z"
                | "linear_attn.in_proj_a"
                | "linear_attn.in_proj_b"
                | "linear_attn.A_log"
                | "linear_attn.dt_bias"
            ):
                full = part(full, ranks, place)
            case "linear_attn.out_proj":
                full = part(full, ranks, place, axis=1)
        result[name] = full
    return result


def held_slices(weights: Qwen35Weights, shape: Shape) -> dict[str, Array]:
    """Every weight the rank holds, under the checkpoint's names and in its layout."""
    held = {"embed_tokens.weight": whole(weights.embedding), "norm.weight": weights.final_scale - 1}
    if weights.head is not None and weights.head is not weights.embedding:
        held["lm_head.weight"] = whole(weights.head)
    for index, layer in enumerate(weights.layers):
        p = f"layers.{index}."
        held[p + "input_layernorm.weight"] = layer.input_scale - 1
        held[p + "post_attention_layernorm.weight"] = layer.mlp_scale - 1
        gate, up = np.split(whole(layer.mlp.inputs), 2)
        held[p + "mlp.gate_proj.weight"], held[p + "mlp.up_proj.weight"] = gate, up
        held[p + "mlp.down_proj.weight"] = whole(layer.mlp.output)
        match layer.mixer:
            case AttentionWeights() as mixer:
                rows = whole(mixer.inputs)
                kv = len(rows) * shape.kv_heads // (2 * shape.heads + 2 * shape.kv_heads)
                parts = np.split(rows, [len(rows) - 2 * kv, len(rows) - kv])
                for name, rows in zip(("q_proj", "k_proj", "v_proj"), parts, strict=True):
                    held[f"{p}self_attn.{name}.weight"] = rows
                held[p + "self_attn.q_norm.weight"] = mixer.query_scale - 1
                held[p + "self_attn.k_norm.weight"] = mixer.key_scale - 1
                held[p + "self_attn.o_proj.weight"] = whole(mixer.output)
            case LinearAttentionWeights() as mixer:
                heads, channels = len(mixer.dt_bias), len(mixer.convolution)
                edges = np.cumsum([channels, heads * shape.value_dim, heads])
                parts = np.split(whole(mixer.inputs), edges)
                names = ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a")
                for name, rows in zip(names, parts, strict=True):
                    held[f"{p}linear_attn.{name}.weight"] = rows
                held[p + "linear_attn.conv1d.weight"] = mixer.convolution[:, None]
                held[p + "linear_attn.A_log"] = np.log(mixer.rate)
                held[p + "linear_attn.dt_bias"] = mixer.dt_bias
                held[p + "linear_attn.norm.weight"] = mixer.norm_weight
                held[p + "linear_attn.out_proj.weight"] = whole(mixer.output)
    return held


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize(
    "name",
    mostly_exhaustive(
        ["base", "deep", "value_3x", "tp4", "odd_linear", "wide_head"],
        lambda name: name in ("base", "odd_linear"),
    ),
)
def test_every_rank_holds_its_heads_and_nothing_else(
    tmp_path: Path, name: str, variant: Variant
) -> None:
    shape = SHAPES[name]
    write_checkpoint(tmp_path, shape, SEED)
    config = read_config(tmp_path)
    for world_size in working_degrees(config, variant):
        for rank in range(world_size):
            weights, report = load(tmp_path, variant, world_size, rank)
            expected = expected_slices(shape, variant, rank, world_size)
            if rank:
                expected.pop("lm_head.weight", None)
            held = held_slices(weights, shape)
            assert set(held) == set(expected)
            for key, array in expected.items():
                np.testing.assert_allclose(held[key], array, rtol=1e-6, atol=1e-7, err_msg=key)
            matrices = [key for key in held if held[key].ndim == 2]
            assert all(np.array_equal(held[key], expected[key]) for key in matrices)
            assert report.bytes_read == sum(array.nbytes for array in expected.values())


@pytest.mark.parametrize("layout", ["public", "text"])
@pytest.mark.parametrize("choice", list(WeightsDtype))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_report_says_what_was_read_and_what_is_held(
    tmp_path: Path, layout: str, choice: WeightsDtype, dtype: str
) -> None:
    shape = replace(BASE, layout=layout, dtype=dtype, tied=False)
    write_checkpoint(tmp_path, shape, SEED)
    config = read_config(tmp_path)
    for rank in range(2):
        program = qwen35_program(config, Variant.SHARDED, 2)
        checkpoint = open_checkpoint(tmp_path, program.weights)
        seen: list[tuple[int, int]] = []

        def progress(done: int, total: int, seen: list[tuple[int, int]] = seen) -> None:
            seen.append((done, total))

        _, report = load_weights(
            config,
            program,
            checkpoint,
            rank,
            weights_dtype=choice,
            progress=progress,
        )
        items = held_item_bytes(program, held_dtypes(config, checkpoint, choice))
        assert report.bytes_held == weight_bytes(program, rank, items)
        assert report.tensors == len(program.weights)
        assert report.skipped_tensors == checkpoint.skipped_tensors
        assert set(report.skipped_tensors) == set(Skipped)
        assert report.skipped_bytes == checkpoint.skipped_bytes
        assert seen == sorted(seen)
        assert seen[-1] == (report.bytes_read, report.bytes_read)


def poisoned(folder: Path, name: str, value: bytes) -> None:
    """Overwrite the last element of a tensor in whichever file it lies."""
    for path in sorted(folder.glob("*.safetensors")):
        data = bytearray(path.read_bytes())
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + length])
        for tensor_name, fields in header.items():
            if tensor_name.endswith(name):
                end = 8 + length + fields["data_offsets"][1]
                data[end - len(value) : end] = value
                path.write_bytes(data)
                return
    raise AssertionError(name)


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", np.float32(np.nan).tobytes()),
        ("float32", np.float32(np.inf).tobytes()),
        ("bfloat16", b"\xc1\x7f"),
        ("bfloat16", b"\x80\xff"),
    ],
)
@pytest.mark.parametrize("name", ["layers.2.mlp.down_proj.weight", "layers.1.linear_attn.dt_bias"])
def test_weights_that_are_not_finite_are_refused_when_asked(
    tmp_path: Path, dtype: str, value: bytes, name: str
) -> None:
    write_checkpoint(tmp_path, replace(BASE, dtype=dtype), SEED)
    load(tmp_path, Variant.SHARDED, 2, 1, check_values=True)
    poisoned(tmp_path, name, value)
    load(tmp_path, Variant.SHARDED, 2, 1)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, Variant.SHARDED, 2, 1, check_values=True)
    assert caught.value.code == "checkpoint.values"
    assert caught.value.problems[0].field == name


def stored_as_float16(path: Path) -> None:
    """Rewrite a float32 file with every tensor in float16."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header, body, end = json.loads(data[8 : 8 + length]), b"", 0
    for fields in sorted(
        (fields for name, fields in header.items() if name != "__metadata__"),
        key=lambda fields: int(fields["data_offsets"][0]),
    ):
        start, stop = (8 + length + offset for offset in fields["data_offsets"])
        body += np.frombuffer(data[start:stop], "<f4").astype("<f2").tobytes()
        fields["dtype"] = "F16"
        fields["data_offsets"] = [end, len(body)]
        end = len(body)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


@pytest.mark.parametrize("choice", [WeightsDtype.AUTO, WeightsDtype.FLOAT32])
def test_weights_stored_in_float16(tmp_path: Path, choice: WeightsDtype) -> None:
    shape = replace(BASE, shards=1)
    write_checkpoint(tmp_path, shape, SEED)
    stored_as_float16(tmp_path / "model.safetensors-00001-of-00001.safetensors")
    weights, report = load(tmp_path, Variant.SHARDED, 2, 1, weights_dtype=choice)
    held = held_slices(weights, shape)
    for key, array in expected_slices(shape, Variant.SHARDED, 1, 2).items():
        np.testing.assert_allclose(held[key], array.astype(np.float16), rtol=1e-3, atol=1e-6)
    # Vectors are held in float32 either way.
    widened = report.bytes_held > 1.9 * report.bytes_read
    assert widened == (choice is WeightsDtype.FLOAT32)


def peak_rss_above_now(action: object) -> int:
    """Growth of the peak resident size of this process while `action` runs, in bytes."""

    def field(name: str) -> int:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split(f"{name}:")[1].split()[0]) * 1024

    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = field("VmRSS")
    assert callable(action)
    action()
    return field("VmHWM") - before


@pytest.mark.parametrize(
    "dtype", [pytest.param("float32", marks=pytest.mark.exhaustive), "bfloat16"]
)
def test_a_loading_rank_never_holds_much_more_than_its_share(tmp_path: Path, dtype: str) -> None:
    shape = replace(
        BASE,
        pattern="LF",
        hidden=1024,
        intermediate=3072,
        vocab=512,
        dtype=dtype,
        key_dim=64,
        value_dim=64,
        head_dim=64,
        shards=1,
    )
    write_checkpoint(tmp_path, shape, SEED)
    full = (tmp_path / "model.safetensors-00001-of-00001.safetensors").stat().st_size
    held: list[object] = []

    def action() -> None:
        held.append(load(tmp_path, Variant.SHARDED, 4, 1))

    growth = peak_rss_above_now(action)
    (loaded,) = held
    assert isinstance(loaded, tuple)
    share = loaded[1].bytes_held
    assert share < 0.4 * full
    assert growth < share + (12 << 20)
    assert growth < 0.75 * full
