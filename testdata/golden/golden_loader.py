"""Reads the golden files after checking their hashes, key sets, dtypes and shapes.  NumPy only."""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from testdata.golden.shapes import SHAPES

FOLDER = Path(__file__).parent  # not resolved: the declared data of a Bazel test lie beside it
FORMAT = 1
MAX_FILE_BYTES = 8 << 20
SEQUENCE_FIELDS = {
    "ids": np.int64,
    "positions": np.int64,
    "logits64": np.float64,
    "logits32": np.float32,
    "gaps": np.float64,
}
STATE_FIELDS = {"L": ("conv", "recurrent"), "F": ("keys", "values")}  # by layer letter

Float64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Arrays = Mapping[str, npt.NDArray[Any]]


class GoldenError(ValueError):
    """A golden file or the manifest is not what was written."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How far transformers in float32 is from float64 over all rows of a file."""

    relative_l2: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class GoldenFile:
    """One .npz: its name below testdata/golden, SHA-256, prompt lengths and decode steps."""

    file: str
    sha256: str
    prompts: tuple[int, ...]
    steps: int
    noise: Noise


@dataclass(frozen=True, slots=True)
class ShapeEntry:
    """What the manifest says about one shape."""

    seed: int
    checkpoint_sha256: Mapping[str, str]  # file name -> SHA-256, of the shape's own storage form
    tp_degrees: Mapping[str, list[int]]  # program -> degrees
    state_sequence: int
    short: GoldenFile
    long: GoldenFile | None


@dataclass(frozen=True, slots=True)
class TrainedEntry:
    """What the manifest says about the shipped model: prompts and greedy texts beside the file."""

    checkpoint_sha256: Mapping[str, str]  # every file of testdata/tiny-qwen35 that a loader reads
    golden: GoldenFile
    prompts: tuple[str, ...]
    continuations: tuple[str, ...]  # the decoded greedy choices of the float64 reference


@dataclass(frozen=True, slots=True)
class Manifest:
    """manifest.json."""

    versions: Mapping[str, str]
    shapes: Mapping[str, ShapeEntry]
    trained: TrainedEntry


@dataclass(frozen=True, slots=True)
class States:
    """State of one sequence right after its prompt, float64, by layer index.

    conv [2 Hk dk + Hv dv, kernel - 1]; recurrent [Hv, dk, dv]; keys, values [KV heads, prompt,
    head_dim] (empty mappings in the long set).
    """

    sequence: int
    conv: Mapping[int, Float64]
    recurrent: Mapping[int, Float64]
    keys: Mapping[int, Float64]
    values: Mapping[int, Float64]


@dataclass(frozen=True, slots=True)
class Sequence:
    """One prompt, its greedy continuation and logits rows; see README.md."""

    prompt: int
    ids: Ids
    positions: Ids
    logits64: Float64
    logits32: npt.NDArray[np.float32]
    gaps: Float64


def load_manifest(folder: Path = FOLDER) -> Manifest:
    """Raises GoldenError unless manifest.json has exactly the fields that are read here."""
    try:
        document = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GoldenError(f"manifest.json: {error}") from error
    root = _exact(document, "manifest", ("format", "shapes", "trained", "versions"))
    if root["format"] != FORMAT:
        raise GoldenError(f"manifest format {root['format']!r}: expected {FORMAT}")
    if set(root["shapes"]) != set(SHAPES):
        raise GoldenError(f"manifest shapes {sorted(root['shapes'])}: expected {sorted(SHAPES)}")
    entries = {name: _entry(name, value) for name, value in root["shapes"].items()}
    trained = _trained(root["trained"])
    return Manifest(versions=root["versions"], shapes=entries, trained=trained)


def load_short(name: str, folder: Path = FOLDER) -> list[Sequence]:
    """The short set of a shape: 12 sequences in the order of the manifest."""
    return _short(name, folder)[0]


def load_states(name: str, folder: Path = FOLDER) -> States:
    """The states that the short set stores for one sequence of the shape."""
    return _short(name, folder)[1]


def load_long(name: str, folder: Path = FOLDER) -> list[tuple[Sequence, States]]:
    """The long set of a shape: each sequence with its linear-attention states."""
    golden = load_manifest(folder).shapes[name].long
    if golden is None:
        raise GoldenError(f"shape {name!r} has no long set")
    prefixes = [f"s{index:02d}" for index in range(len(golden.prompts))]
    stated = {prefix: _state_names(SHAPES[name].pattern, "L") for prefix in prefixes}
    arrays = _read(folder, golden, stated)
    return [
        (sequence, _states(arrays, prefix, index, stated[prefix]))
        for index, (prefix, sequence) in enumerate(
            zip(prefixes, _sequences(arrays, golden), strict=True)
        )
    ]


def load_trained(folder: Path = FOLDER) -> list[Sequence]:
    """The sequences of the shipped model, in the order of the manifest's prompts."""
    golden = load_manifest(folder).trained.golden
    return _sequences(_read(folder, golden, {}), golden)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file's bytes, in hexadecimal."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _entry(name: str, value: object) -> ShapeEntry:
    fields = ("checkpoint_sha256", "long", "seed", "short", "state_sequence", "tp_degrees")
    entry = _exact(value, name, fields)
    return ShapeEntry(
        seed=entry["seed"],
        checkpoint_sha256=entry["checkpoint_sha256"],
        tp_degrees=entry["tp_degrees"],
        state_sequence=entry["state_sequence"],
        short=_golden_file(f"{name}.short", entry["short"]),
        long=None if entry["long"] is None else _golden_file(f"{name}.long", entry["long"]),
    )


def _trained(value: object) -> TrainedEntry:
    fields = ("checkpoint_sha256", "continuations", "golden", "prompts")
    entry = _exact(value, "trained", fields)
    return TrainedEntry(
        checkpoint_sha256=entry["checkpoint_sha256"],
        golden=_golden_file("trained.golden", entry["golden"]),
        prompts=tuple(entry["prompts"]),
        continuations=tuple(entry["continuations"]),
    )


def _golden_file(where: str, value: object) -> GoldenFile:
    fields = _exact(value, where, ("file", "noise", "prompts", "sha256", "steps"))
    noise = _exact(fields["noise"], f"{where}.noise", ("max", "p99", "relative_l2"))
    return GoldenFile(
        file=fields["file"],
        sha256=fields["sha256"],
        prompts=tuple(fields["prompts"]),
        steps=fields["steps"],
        noise=Noise(**noise),
    )


def _exact(value: object, where: str, keys: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(value, dict) or sorted(value) != sorted(keys):
        raise GoldenError(f"{where}: expected an object with exactly {sorted(keys)}")
    return value


def _short(name: str, folder: Path) -> tuple[list[Sequence], States]:
    entry = load_manifest(folder).shapes[name]
    stated = _state_names(SHAPES[name].pattern, "LF")
    arrays = _read(folder, entry.short, {"state": stated})
    states = _states(arrays, "state", entry.state_sequence, stated)
    return _sequences(arrays, entry.short), states


def _state_names(pattern: str, letters: str) -> list[tuple[int, str]]:
    """(layer, field) of every state of the layers whose letter is in `letters`."""
    return [
        (layer, field)
        for layer, letter in enumerate(pattern)
        if letter in letters
        for field in STATE_FIELDS[letter]
    ]


def _read(folder: Path, golden: GoldenFile, stated: Mapping[str, list[tuple[int, str]]]) -> Arrays:
    """Every array of a file, once its size, its hash and the names in it are as expected.

    `stated`: prefix -> the (layer, field) of each state stored under that prefix.
    """
    path = folder / golden.file
    if path.stat().st_size > MAX_FILE_BYTES:
        raise GoldenError(f"{golden.file}: larger than {MAX_FILE_BYTES} bytes")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != golden.sha256:
        raise GoldenError(f"{golden.file}: SHA-256 {found}, manifest has {golden.sha256}")
    names = {f"s{i:02d}.{field}" for i in range(len(golden.prompts)) for field in SEQUENCE_FIELDS}
    for prefix, states in stated.items():
        names |= {f"{prefix}.L{layer}.{field}" for layer, field in states}
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            if set(archive.files) != names:
                raise GoldenError(f"{golden.file}: arrays {set(archive.files) ^ names} differ")
            return {name: archive[name] for name in archive.files}
    except zipfile.BadZipFile as error:
        raise GoldenError(f"{golden.file}: {error}") from error


def _sequences(arrays: Arrays, golden: GoldenFile) -> list[Sequence]:
    result = []
    for index, prompt in enumerate(golden.prompts):
        fields: dict[str, Any] = {}
        for field, dtype in SEQUENCE_FIELDS.items():
            fields[field] = _array(arrays, f"s{index:02d}.{field}", dtype)
        sequence = Sequence(prompt=prompt, **fields)
        rows = len(sequence.positions)
        if len(sequence.ids) != prompt + golden.steps or len(sequence.gaps) != golden.steps:
            _bad(golden.file, index, "ids or gaps do not fit the prompt and the steps")
        if len(sequence.logits64) != rows or len(sequence.logits32) != rows:
            _bad(golden.file, index, "one row of logits is needed for each position")
        tail = np.arange(prompt - 1, prompt + golden.steps)
        if not np.array_equal(sequence.positions[-len(tail) :], tail):
            _bad(golden.file, index, "the last positions are not the decode steps")
        result.append(sequence)
    return result


def _states(arrays: Arrays, prefix: str, sequence: int, stated: list[tuple[int, str]]) -> States:
    found: dict[str, dict[int, Float64]] = {"conv": {}, "recurrent": {}, "keys": {}, "values": {}}
    for layer, field in stated:
        found[field][layer] = _array(arrays, f"{prefix}.L{layer}.{field}", np.float64)
    return States(sequence=sequence, **found)


def _array(arrays: Arrays, name: str, dtype: type) -> npt.NDArray[Any]:
    if arrays[name].dtype != dtype:
        raise GoldenError(f"array {name!r} is {arrays[name].dtype}, not {np.dtype(dtype).name}")
    return arrays[name]


def _bad(file: str, index: int, reason: str) -> NoReturn:
    raise GoldenError(f"{file}: sequence {index}: {reason}")
