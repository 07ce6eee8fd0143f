"""The golden files are what was generated, cover what they claim, and their weights regenerate."""

import json
import shutil
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from testdata.golden import golden_loader, seeded_checkpoint
from testdata.golden.shapes import SHAPES

MAX_TOTAL_BYTES = 12_000_000
MANIFEST = golden_loader.load_manifest()
LONG = [name for name, entry in MANIFEST.shapes.items() if entry.long is not None]
# Tolerances of the float32 gates; the float32 reference itself has to pass them with room.
GATE_RELATIVE_L2, GATE_P99, GATE_MAX = 5e-5, 5e-4, 1e-2


def stored_values(path: Path) -> dict[str, tuple[str, npt.NDArray[np.float32]]]:
    """Name -> (dtype, values) of a safetensors file, read without the code that wrote it."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    result = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, last = (8 + length + offset for offset in entry["data_offsets"])
        if entry["dtype"] == "BF16":
            bits = np.frombuffer(content[first:last], "<u2").astype(np.uint32) << 16
            values = bits.view(np.float32)
        else:
            values = np.frombuffer(content[first:last], "<f4")
        result[name] = (entry["dtype"], values.reshape(entry["shape"]))
    return result


def folder_values(folder: Path) -> dict[str, tuple[str, npt.NDArray[np.float32]]]:
    parts = [stored_values(path) for path in sorted(folder.glob("*.safetensors"))]
    merged = {name: value for part in parts for name, value in part.items()}
    assert len(merged) == sum(len(part) for part in parts)
    return merged


def golden_copy(folder: Path) -> Path:
    """The manifest and one golden file, free to be damaged."""
    (folder / "short").mkdir()
    shutil.copy(golden_loader.FOLDER / "manifest.json", folder)
    shutil.copy(golden_loader.FOLDER / "short" / "base.npz", folder / "short")
    return folder


def test_splitmix64_known_answers() -> None:
    expected = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert seeded_checkpoint.splitmix64(0, 3).tolist() == expected


def test_bell_has_the_deviation_asked_for() -> None:
    values = seeded_checkpoint.bell(1, "x", (100, 1000), 0.3)
    assert abs(float(values.std()) - 0.3) < 3e-3
    assert abs(float(values.mean())) < 3e-3


@pytest.mark.parametrize("name", SHAPES)
def test_checkpoint_regenerates(name: str, tmp_path: Path) -> None:
    entry = MANIFEST.shapes[name]
    returned = seeded_checkpoint.write_checkpoint(tmp_path / "ckpt", SHAPES[name], entry.seed)
    on_disk = {path.name: golden_loader.file_sha256(path) for path in (tmp_path / "ckpt").iterdir()}
    assert returned == on_disk == entry.checkpoint_sha256


def test_another_seed_is_noticed(tmp_path: Path) -> None:
    entry = MANIFEST.shapes["base"]
    hashes = seeded_checkpoint.write_checkpoint(tmp_path, SHAPES["base"], entry.seed + 1)
    assert hashes["config.json"] == entry.checkpoint_sha256["config.json"]
    assert all(
        hashes[file] != digest
        for file, digest in entry.checkpoint_sha256.items()
        if file.endswith(".safetensors")
    )


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", ["public", "text"])
def test_every_way_of_storing_holds_the_same_weights(
    layout: str, dtype: str, shards: int, tmp_path: Path
) -> None:
    shape = replace(SHAPES["deep"], layout=layout, dtype=dtype, shards=shards)
    files = seeded_checkpoint.write_checkpoint(tmp_path, shape, 7)
    assert ("model.safetensors" in files) == (layout == "text" and shards == 1)
    if "model.safetensors.index.json" in files:
        index = json.loads((tmp_path / "model.safetensors.index.json").read_text())
        assert set(index["weight_map"].values()) == {f for f in files if "-of-" in f}
        assert set(index["weight_map"]) == set(folder_values(tmp_path))
    expected = seeded_checkpoint.checkpoint_tensors(shape, 7)
    found = folder_values(tmp_path)
    assert set(found) == set(expected)
    for name, (stored, values) in found.items():
        kept = dtype == "float32" or (
            layout == "public" and name.endswith(("linear_attn.A_log", "linear_attn.norm.weight"))
        )
        assert stored == ("F32" if kept else "BF16")
        # bfloat16 keeps 8 significant bits; rounding to nearest moves a value by half of the last.
        half_unit = np.ldexp(np.float32(0.0 if kept else 1.0), np.frexp(expected[name])[1] - 9)
        assert (np.abs(values - expected[name]) <= half_unit).all(), name


def test_a_folder_with_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("")
    with pytest.raises(ValueError, match="not empty"):
        seeded_checkpoint.write_checkpoint(tmp_path, SHAPES["base"], 0)


def test_shapes_cover_what_can_go_wrong() -> None:
    shapes = list(SHAPES.values())

    def found(value: Any) -> set[Any]:
        return {value(shape) for shape in shapes}

    assert found(lambda s: s.value_heads // s.key_heads) >= {1, 2, 3}
    assert found(lambda s: s.heads // s.kv_heads) >= {1, 2, 3, 8}
    assert found(lambda s: s.kernel) >= {2, 3, 4}
    assert found(lambda s: s.rope_fraction) >= {0.25, 0.5, 1.0}
    assert found(lambda s: s.pattern) >= {"LLLF", "LLLFLLLF", "LFLF", "FLLF"}
    assert found(lambda s: (s.key_dim > s.value_dim) - (s.key_dim < s.value_dim)) == {-1, 0, 1}
    assert found(lambda s: s.tied) == {True, False}
    assert any(s.heads * s.head_dim != s.hidden for s in shapes)
    assert found(lambda s: s.rms_eps) >= {1e-6, 1e-2}
    assert found(lambda s: (s.layout, s.dtype)) >= {
        ("public", "float32"),
        ("public", "bfloat16"),
        ("text", "bfloat16"),
    }
    assert any(s.kv_heads == 1 for s in shapes)


def test_tensor_parallel_degrees() -> None:
    for name, entry in MANIFEST.shapes.items():
        for program in ("replicated", "sharded"):
            assert entry.tp_degrees[program] == SHAPES[name].tp_degrees(program)
    assert MANIFEST.shapes["mqa"].tp_degrees["replicated"] == [1]
    assert MANIFEST.shapes["odd_linear"].tp_degrees == {"replicated": [1, 2, 4], "sharded": [1]}
    two_per_rank = SHAPES["tp4"]
    assert min(two_per_rank.kv_heads, two_per_rank.key_heads) // 4 >= 2
    sharded_by_four = [n for n, e in MANIFEST.shapes.items() if 4 in e.tp_degrees["sharded"]]
    assert len(sharded_by_four) >= 12


def test_files_are_those_of_the_manifest_and_small() -> None:
    listed = {
        golden.file
        for entry in MANIFEST.shapes.values()
        for golden in (entry.short, entry.long)
        if golden is not None
    } | {MANIFEST.trained.golden.file}
    folder = golden_loader.FOLDER
    present = {path.relative_to(folder).as_posix() for path in folder.glob("*/*.npz")}
    assert present == listed
    assert sum((folder / file).stat().st_size for file in listed) < MAX_TOTAL_BYTES


def check_sequence(sequence: golden_loader.Sequence, vocab: int) -> None:
    prompt, steps = sequence.prompt, len(sequence.gaps)
    assert sequence.ids.min() >= 0
    assert sequence.ids.max() < vocab
    assert (np.diff(sequence.positions) > 0).all()
    assert sequence.logits64.shape == (len(sequence.positions), vocab)
    assert sequence.logits32.shape == sequence.logits64.shape
    assert np.isfinite(sequence.logits64).all()
    assert 0.3 < float(sequence.logits64.std()) < 10.0
    decoding = sequence.logits64[-steps - 1 : -1]
    assert decoding.argmax(axis=1).tolist() == sequence.ids[prompt:].tolist()
    top = np.sort(decoding, axis=1)
    assert np.array_equal(top[:, -1] - top[:, -2], sequence.gaps)


def check_noise(sequences: list[golden_loader.Sequence], noise: golden_loader.Noise) -> None:
    exact = np.concatenate([s.logits64.ravel() for s in sequences])
    error = np.abs(np.concatenate([s.logits32.ravel() for s in sequences]) - exact)
    relative = float(np.linalg.norm(error) / np.linalg.norm(exact))
    measured = [relative, float(np.quantile(error, 0.99)), float(error.max())]
    assert measured == pytest.approx([noise.relative_l2, noise.p99, noise.max], rel=1e-2)
    assert noise.relative_l2 < GATE_RELATIVE_L2
    assert noise.p99 < GATE_P99
    assert noise.max < GATE_MAX


@pytest.mark.parametrize("name", SHAPES)
def test_short_set(name: str) -> None:
    sequences = golden_loader.load_short(name)
    assert len(sequences) == 12
    lengths = [sequence.prompt for sequence in sequences]
    assert (min(lengths), max(lengths)) == (1, 128)
    assert {63, 64, 65} <= set(lengths)
    for sequence in sequences:
        assert len(sequence.gaps) == 8
        check_sequence(sequence, SHAPES[name].vocab)
    check_noise(sequences, MANIFEST.shapes[name].short.noise)


@pytest.mark.parametrize("name", SHAPES)
def test_states(name: str) -> None:
    shape, states = SHAPES[name], golden_loader.load_states(name)
    prompt = golden_loader.load_short(name)[states.sequence].prompt
    channels = 2 * shape.key_heads * shape.key_dim + shape.value_heads * shape.value_dim
    for layer, letter in enumerate(shape.pattern):
        if letter == "L":
            assert states.conv[layer].shape == (channels, shape.kernel - 1)
            recurrent = (shape.value_heads, shape.key_dim, shape.value_dim)
            assert states.recurrent[layer].shape == recurrent
        else:
            assert states.keys[layer].shape == (shape.kv_heads, prompt, shape.head_dim)
            assert states.values[layer].shape == states.keys[layer].shape
    assert len(states.conv) + len(states.keys) == len(shape.pattern)


@pytest.mark.parametrize("name", LONG)
def test_long_set(name: str) -> None:
    found = golden_loader.load_long(name)
    assert [sequence.prompt for sequence, _ in found] == [4097, 8192]
    for sequence, states in found:
        check_sequence(sequence, SHAPES[name].vocab)
        assert len(states.conv) == len(states.recurrent) == SHAPES[name].pattern.count("L")
    golden = MANIFEST.shapes[name].long
    assert golden is not None
    check_noise([sequence for sequence, _ in found], golden.noise)


def test_trained_set() -> None:
    trained = MANIFEST.trained
    sequences = golden_loader.load_trained()
    assert len(sequences) == len(trained.prompts) == len(trained.continuations) == 4
    for sequence in sequences:
        assert sequence.positions[0] == sequence.prompt - 1
        check_sequence(sequence, vocab=1024)
    check_noise(sequences, trained.golden.noise)


def test_two_shapes_have_a_long_set() -> None:
    assert len(LONG) == 2
    with pytest.raises(golden_loader.GoldenError):
        golden_loader.load_long("base")


def test_a_changed_byte_is_refused(tmp_path: Path) -> None:
    folder = golden_copy(tmp_path)
    assert len(golden_loader.load_short("base", folder)) == 12
    path = folder / "short" / "base.npz"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(golden_loader.GoldenError):
        golden_loader.load_short("base", folder)


@pytest.mark.parametrize("fault", ["extra key", "missing shape", "format", "not json"])
def test_a_changed_manifest_is_refused(fault: str, tmp_path: Path) -> None:
    folder = golden_copy(tmp_path)
    document = json.loads((folder / "manifest.json").read_text())
    if fault == "extra key":
        document["shapes"]["base"]["note"] = ""
    elif fault == "missing shape":
        del document["shapes"]["base"]
    elif fault == "format":
        document["format"] = 2
    text = "{" if fault == "not json" else json.dumps(document)
    (folder / "manifest.json").write_text(text)
    with pytest.raises(golden_loader.GoldenError):
        golden_loader.load_manifest(folder)
