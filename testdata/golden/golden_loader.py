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
STATE_FIELDS = ("conv", "recurrent", "keys", "values")

Float64 = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]


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
class Manifest:
    """manifest.json."""

    versions: Mapping[str, str]
    shapes: Mapping[str, ShapeEntry]


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
    root = _exact(document, "manifest", ("format", "shapes", "versions"))
    if root["format"] != FORMAT:
        raise GoldenError(f"manifest format {root['format']!r}: expected {FORMAT}")
    if set(root["shapes"]) != set(SHAPES):
        raise GoldenError(f"manifest shapes {sorted(root['shapes'])}: expected {sorted(SHAPES)}")
    entries = {name: _entry(name, value) for name, value in root["shapes"].items()}
    return Manifest(versions=root["versions"], shapes=entries)


def load_short(name: str, folder: Path = FOLDER) -> list[Sequence]:
    """The short set of a shape: 12 sequences in the order of the manifest."""
    golden = load_manifest(folder).shapes[name].short
    return _sequences(_read(folder, golden), golden)


def load_states(name: str, folder: Path = FOLDER) -> States:
    """The states that the short set stores for one sequence of the shape."""
    entry = load_manifest(folder).shapes[name]
    arrays = _read(folder, entry.short)
    return _states(arrays, "state", entry.state_sequence, SHAPES[name].pattern)


def load_long(name: str, folder: Path = FOLDER) -> list[tuple[Sequence, States]]:
    """The long set of a shape: each sequence with its linear-attention states."""
    golden = load_manifest(folder).shapes[name].long
    if golden is None:
        raise GoldenError(f"shape {name!r} has no long set")
    arrays = _read(folder, golden)
    pattern = SHAPES[name].pattern
    return [
        (sequence, _states(arrays, f"s{index:02d}", index, pattern))
        for index, sequence in enumerate(_sequences(arrays, golden))
    ]


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


def _read(folder: Path, golden: GoldenFile) -> dict[str, npt.NDArray[Any]]:
    """Every array of a file, once its size and hash are those of the manifest."""
    path = folder / golden.file
    if path.stat().st_size > MAX_FILE_BYTES:
        raise GoldenError(f"{golden.file}: larger than {MAX_FILE_BYTES} bytes")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != golden.sha256:
        raise GoldenError(f"{golden.file}: SHA-256 {found}, manifest has {golden.sha256}")
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, zipfile.BadZipFile) as error:
        raise GoldenError(f"{golden.file}: {error}") from error


def _sequences(arrays: Mapping[str, npt.NDArray[Any]], golden: GoldenFile) -> list[Sequence]:
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


def _states(
    arrays: Mapping[str, npt.NDArray[Any]], prefix: str, sequence: int, pattern: str
) -> States:
    found: dict[str, dict[int, Float64]] = {field: {} for field in STATE_FIELDS}
    for layer, letter in enumerate(pattern):
        for field in STATE_FIELDS[:2] if letter == "L" else STATE_FIELDS[2:]:
            name = f"{prefix}.L{layer}.{field}"
            if letter == "L" or name in arrays:
                found[field][layer] = _array(arrays, name, np.float64)
    return States(sequence=sequence, **found)


def _array(arrays: Mapping[str, npt.NDArray[Any]], name: str, dtype: type) -> npt.NDArray[Any]:
    if name not in arrays or arrays[name].dtype != dtype:
        raise GoldenError(f"array {name!r}: missing, or not {np.dtype(dtype).name}")
    return arrays[name]


def _bad(file: str, index: int, reason: str) -> NoReturn:
    raise GoldenError(f"{file}: sequence {index}: {reason}")
