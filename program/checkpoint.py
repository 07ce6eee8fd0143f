"""A checkpoint folder: which file holds which weight of the program, checked before any is read.

The names are those of the published Qwen3.5 files, under either prefix. Every tensor of every file
is claimed exactly once by a weight of the program or skipped by the list below; anything else
refuses to load (docs/spec/checkpoint.md, clauses N). Reads headers and the index, no weights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NoReturn

from errors import ConfigError
from program.qwen35 import HEAD
from program.safetensors import TensorEntry, read_header
from program.spec import WeightSpec
from program.strict_json import parse_object, shown

SINGLE_FILE: Final = "model.safetensors"
INDEX_FILE: Final = "model.safetensors.index.json"
# The published index of the 9B model has 79,657 bytes.
INDEX_BYTES_MAX: Final = 16 << 20
FILES_MAX: Final = 1 << 12
# A shard's name is a plain file name of the folder: no separators, so no way out of it.
_SHARD_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,200}\.safetensors")
# Wrapper files nest the text model; text-only saves do not. The head never has a prefix.
PREFIXES: Final = ("model.language_model.", "model.")


class Skipped(Enum):
    """Groups of tensors that text inference does not use; the value is their names' prefix."""

    VISION = "model.visual."
    MTP = "mtp."


class StoredDtype(Enum):
    """Element types a weight may be stored in, in the format's words."""

    FLOAT32 = "F32"
    BFLOAT16 = "BF16"
    FLOAT16 = "F16"

    @property
    def item_bytes(self) -> int:
        return 4 if self is StoredDtype.FLOAT32 else 2


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Where one weight of the program lies: file, byte range, element type."""

    file: Path
    entry: TensorEntry
    dtype: StoredDtype


@dataclass(frozen=True)
class Checkpoint:
    """Every weight of the program by the program's name, and what was passed over."""

    folder: Path
    tensors: Mapping[str, StoredTensor]
    skipped_tensors: Mapping[Skipped, int]
    skipped_bytes: int


def open_checkpoint(folder: Path, weights: Iterable[WeightSpec]) -> Checkpoint:
    """Claim every weight of the program in the folder's files.

    Raises ConfigError: checkpoint.unreadable, checkpoint.header, checkpoint.index (the index and
    the files disagree), checkpoint.names (missing, unknown or twice claimed tensors),
    checkpoint.shape or checkpoint.dtype.
    """
    specs = {weight.name: weight for weight in weights}
    found: dict[str, StoredTensor] = {}
    prefixes: dict[str, str] = {}
    skipped = dict.fromkeys(Skipped, 0)
    skipped_bytes = 0
    for path, entries in _files(folder):
        for entry in entries:
            group = next((g for g in Skipped if entry.name.startswith(g.value)), None)
            if group is not None:
                skipped[group] += 1
                skipped_bytes += entry.bytes_count
                continue
            prefix, name = _canonical(entry.name)
            if name not in specs:
                _refuse("names", f"{path.name}: {entry.name}", "is not a tensor of this model")
            if name in found:
                _refuse("names", f"{path.name}: {entry.name}", f"is a second {name}")
            if prefix:
                prefixes[prefix] = entry.name
            found[name] = _claimed(path, entry, specs[name])
    if len(prefixes) > 1:
        _refuse("names", " and ".join(prefixes.values()), "must use one prefix throughout")
    missing = [name for name in specs if name not in found]
    if missing:
        rule = f"must hold every tensor of the model; {len(missing)} are missing"
        _refuse("names", missing[0], rule)
    return Checkpoint(folder, found, skipped, skipped_bytes)


def _refuse(reason: str, value: object, rule: str) -> NoReturn:
    raise ConfigError.single("checkpoint", shown(value), rule, f"checkpoint.{reason}")


def _canonical(name: str) -> tuple[str, str]:
    """(prefix, the program's name) of a tensor's name in the file."""
    if name == HEAD:
        return "", name
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", ""


def _claimed(path: Path, entry: TensorEntry, spec: WeightSpec) -> StoredTensor:
    if entry.shape != spec.shape:
        rule = f"must have shape {list(spec.shape)}"
        raise ConfigError.single(entry.name, list(entry.shape), rule, "checkpoint.shape")
    try:
        dtype = StoredDtype(entry.dtype)
    except ValueError:
        allowed = ", ".join(kind.value for kind in StoredDtype)
        raise ConfigError.single(
            entry.name, entry.dtype, f"must be stored as one of {allowed}", "checkpoint.dtype"
        ) from None
    return StoredTensor(path, entry, dtype)


def _files(folder: Path) -> Iterable[tuple[Path, tuple[TensorEntry, ...]]]:
    """Every weight file with its tensors: the single file, or those the index names."""
    single, index = folder / SINGLE_FILE, folder / INDEX_FILE
    if single.is_file() and index.is_file():
        _refuse("index", folder, f"holds both {SINGLE_FILE} and {INDEX_FILE}; keep one")
    if single.is_file():
        return [(single, read_header(single))]
    if not index.is_file():
        _refuse("unreadable", folder, f"must hold {SINGLE_FILE} or {INDEX_FILE}")
    files = []
    for shard, placed in sorted(_index(index).items()):
        entries = read_header(folder / shard)
        held = {entry.name for entry in entries}
        for name in sorted(held - placed):
            _refuse("index", f"{shard}: {name}", f"is not placed there by {INDEX_FILE}")
        for name in sorted(placed - held):
            _refuse("index", f"{shard}: {name}", f"is missing, {INDEX_FILE} places it there")
        files.append((folder / shard, entries))
    return files


def _index(path: Path) -> dict[str, set[str]]:
    """Shard file name -> names of the tensors the index places there. total_size is not used."""
    try:
        with path.open("rb") as stream:
            data = stream.read(INDEX_BYTES_MAX + 1)
    except OSError as error:
        _refuse("unreadable", path, f"must be readable: {error.strerror}")
    table = parse_object(data, INDEX_FILE, bytes_max=INDEX_BYTES_MAX, code="checkpoint.index")
    weight_map = table.get("weight_map")
    if not set(table) <= {"weight_map", "metadata"} or not isinstance(weight_map, dict):
        _refuse("index", sorted(table), "must have weight_map, and metadata at most beside it")
    placed: dict[str, set[str]] = {}
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not _SHARD_NAME.fullmatch(shard):
            _refuse("index", f"{name}: {shard}", "must be placed in a .safetensors file here")
        placed.setdefault(shard, set()).add(name)
    if not 0 < len(placed) <= FILES_MAX:
        _refuse("index", f"{len(placed)} files", f"must name 1 to {FILES_MAX} files")
    return placed
