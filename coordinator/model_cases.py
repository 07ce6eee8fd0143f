"""Models, manifests and workers for the tests of the model commands."""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NoReturn

import worker.main
from coordinator.model_options import ScoreOptions
from coordinator.model_run import ModelBindings
from coordinator.model_setup import Machine
from coordinator.processes import ExecLauncher, Launcher
from manifest.run_manifest import RunManifest, from_flags
from testdata.golden.seeded_checkpoint import write_checkpoint
from testdata.golden.shapes import BASE, Shape, config
from testdata.golden.tensor_shapes import full_name, text_tensors

MACHINE: Final = Machine(memory_bytes=4 << 30, processors=frozenset({0, 1}))
WEIGHTS: Final = "model.safetensors"
# Stored as one file under the short names, so that a test can change it.
SMALL: Final = replace(BASE, layout="text", shards=1)
# The published 4B model's dimensions.
FOUR_B: Final = replace(
    SMALL,
    pattern="LLLF" * 8,
    vocab=248320,
    hidden=2560,
    intermediate=9216,
    heads=16,
    kv_heads=4,
    head_dim=256,
    key_heads=16,
    value_heads=32,
    key_dim=128,
    value_dim=128,
    dtype="bfloat16",
)
_LENGTH: Final = struct.Struct("<Q")


def model_run(folder: Path, **fields: object) -> RunManifest:
    """A manifest of a sharded run over two ranks. fields: others, `__` for a dot."""
    flags = {"program": "qwen35/sharded", "ranks": "2", "model.checkpoint": str(folder)}
    given = {name.replace("__", "."): str(value) for name, value in fields.items()}
    return from_flags(flags | {"model.max_batch": "1"} | given)


def real_workers(manifest: RunManifest) -> Launcher:
    """Processes of the real worker program, run by this interpreter."""
    return workers_of(worker.main.__name__)


def workers_of(module: str) -> Launcher:
    """Processes that run a module; they import from where this one does."""
    environment = {
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PYTHONSAFEPATH": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    return ExecLauncher((sys.executable, "-m", module), environment)


def no_workers(manifest: RunManifest) -> NoReturn:
    """For what has to be refused before this."""
    raise AssertionError("a worker was about to be started")


def bindings(
    launcher: Callable[[RunManifest], Launcher] = real_workers, machine: Machine = MACHINE
) -> ModelBindings:
    return ModelBindings(launcher, lambda: machine)


def score_options(
    manifest: RunManifest, tokens: Path = Path("/tokens.json"), **others: Any
) -> ScoreOptions:
    """Options of `score`: those given, and the defaults of the command line."""
    absent = dict.fromkeys(("top", "last", "prefill_tokens", "decode_from", "out", "ledger"))
    return ScoreOptions(manifest=manifest, tokens=tokens, **absent | others)


@dataclass
class WeightFile:
    """A safetensors file taken apart: header by tensor name, and the data behind it."""

    header: dict[str, Any]
    data: bytearray

    @classmethod
    def read(cls, path: Path) -> WeightFile:
        content = path.read_bytes()
        (length,) = _LENGTH.unpack(content[:8])
        return cls(json.loads(content[8 : 8 + length]), bytearray(content[8 + length :]))

    def write(self, path: Path) -> None:
        path.write_bytes(header_bytes(self.header) + self.data)

    def place(self, name: str) -> slice:
        """Where a tensor's bytes are in `data`."""
        return slice(*self.header[name]["data_offsets"])


def header_bytes(header: Mapping[str, Any]) -> bytes:
    """Length and JSON, as they stand at the beginning of a file."""
    text = json.dumps(header).encode("ascii")
    return _LENGTH.pack(len(text)) + text


def small_model(folder: Path, shape: Shape = SMALL) -> Path:
    """A checkpoint whose weights follow from a seed."""
    write_checkpoint(folder, shape, 1)
    return folder


def large_model(folder: Path, shape: Shape, block: bytes = b"") -> Path:
    """A bfloat16 checkpoint of any size, written fast.

    block: an even number of bytes that the weights repeat; without it they are zeros, and the file
    takes no room on the disk.
    """
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config(shape)), encoding="ascii")
    header: dict[str, Any] = {}
    size = 0
    for name, extents in text_tensors(shape).items():
        end = size + 2
        for extent in extents:
            end += (end - size) * (extent - 1)
        place = {"dtype": "BF16", "shape": list(extents), "data_offsets": [size, end]}
        header[full_name(name, shape.layout)] = place
        size = end
    with (folder / WEIGHTS).open("wb") as file:
        start = file.write(header_bytes(header))
        for _ in range(size // len(block) + 1 if block else 0):
            file.write(block)
        file.truncate(start + size)
    return folder
