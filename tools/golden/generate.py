"""Write testdata/golden/{short,long,trained}/*.npz and manifest.json with transformers.

    HF_HUB_OFFLINE=1 python -m tools.golden.generate [--only NAME ...]

A name is a shape or "trained", the shipped model.  With --only, the other entries of an existing
manifest are kept.
"""

import argparse
import json
import platform
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from testdata.golden.golden_loader import FOLDER, FORMAT
from testdata.golden.seeded_checkpoint import shape_seed, tokens, write_checkpoint
from testdata.golden.shapes import SHAPES, Shape
from tools.golden import trained
from tools.golden.forward import Reference
from tools.golden.golden_file import one_sequence, write_file

SHORT_PROMPTS = (1, 2, 3, 5, 16, 17, 31, 63, 64, 65, 100, 128)
LONG_PROMPTS = (4097, 8192)
LONG_SHAPES = ("deep", "tp4")
STEPS = 8
STATE_SEQUENCE = SHORT_PROMPTS.index(65)  # its last token is alone in transformers' second block
LONG_PIECE = 512
PROGRAMS = ("replicated", "sharded")
TRAINED = "trained"


def short_positions(prompt: int) -> npt.NDArray[np.int64]:
    """Every row of short prompts; of longer ones the edges of blocks of 16 and 64, and the ends."""
    kept = {p for p in range(prompt) if prompt <= 17 or p < 4 or p >= prompt - 4}
    kept |= {p for p in (15, 16, 31, 32, 47, 48, 62, 63, 64, 65, 79, 80) if p < prompt}
    return np.array(sorted(kept | set(range(prompt - 1, prompt + STEPS))), dtype=np.int64)


def long_positions(prompt: int) -> npt.NDArray[np.int64]:
    """Both sides of every 512th boundary, the last 16 rows of the prompt and the steps."""
    kept = {p + side for p in range(512, prompt, 512) for side in (-1, 0)} | {0}
    kept |= set(range(prompt - 16, prompt + STEPS))
    return np.array(sorted(kept), dtype=np.int64)


def golden_set(
    name: str, kind: str, prompts: tuple[int, ...], references: tuple[Reference, Reference]
) -> dict[str, object]:
    """Compute and write the short or the long file of a shape."""
    shape, seed = SHAPES[name], shape_seed(name)
    arrays: dict[str, Any] = {}
    for index, length in enumerate(prompts):
        prompt = tokens(seed, f"{kind} prompt {index}", length, shape.vocab)
        positions = short_positions(length) if kind == "short" else long_positions(length)
        piece = length if kind == "short" else LONG_PIECE
        found, states = one_sequence(*references, prompt, positions, piece)
        arrays |= {f"s{index:02d}.{field}": value for field, value in found.items()}
        if kind == "long":
            linear = {
                key: value for key, value in states.items() if shape.pattern[int(key[1])] == "L"
            }
            arrays |= {f"s{index:02d}.{key}": value for key, value in linear.items()}
        elif index == STATE_SEQUENCE:
            arrays |= {f"state.{key}": value for key, value in states.items()}
    return write_file(f"{kind}/{name}.npz", arrays, prompts, STEPS)


def shape_entry(name: str, shape: Shape) -> dict[str, object]:
    """Regenerate the checkpoint, run both references, write the files: a manifest entry."""
    seed = shape_seed(name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        hashes = write_checkpoint(folder, shape, seed)
        references = (Reference(folder, torch.float64), Reference(folder, torch.float32))
    long_set = name in LONG_SHAPES
    return {
        "checkpoint_sha256": hashes,
        "long": golden_set(name, "long", LONG_PROMPTS, references) if long_set else None,
        "seed": seed,
        "short": golden_set(name, "short", SHORT_PROMPTS, references),
        "state_sequence": STATE_SEQUENCE,
        "tp_degrees": {program: shape.tp_degrees(program) for program in PROGRAMS},
    }


def main() -> None:
    """Generate what was chosen and write the manifest."""
    names = [*sorted(SHAPES), TRAINED]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    options = parser.parse_args()
    torch.set_num_threads(1)
    path = FOLDER / "manifest.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    entries, shipped = old.get("shapes", {}), old.get(TRAINED)
    for name in options.only:
        if name == TRAINED:
            shipped = trained.entry()
        else:
            entries[name] = shape_entry(name, SHAPES[name])
        print(name, flush=True)
    versions = {package: version(package) for package in ("numpy", "torch", "transformers")}
    versions["python"] = platform.python_version()
    document = {"format": FORMAT, "shapes": entries, TRAINED: shipped, "versions": versions}
    path.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
