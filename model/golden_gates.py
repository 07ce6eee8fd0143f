"""The gates between engine and oracle, and how a golden sequence is run: shared by model tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from model.lockstep import Lockstep, Requests
from model.ops import Array
from testdata.golden import golden_loader, seeded_checkpoint
from testdata.golden.shapes import SHAPES

# Between engine in float64 and oracle in float64: rounding alone is 2.5e-12 at eight layers.
FLOAT64_MAX = 1e-9
# Between engine in float32 and oracle in float64, up to eight layers, any length. The noise of
# transformers itself is a fifth of it; every visible mistake is a hundred times more.
FLOAT32_RELATIVE_L2 = 5e-5
FLOAT32_P99 = 5e-4
FLOAT32_MAX = 1e-2
# Where the best two logits are closer than this, float32 may choose the other.
GREEDY_GAP = 1e-3


class Folders(dict[str, Path]):
    """Checkpoint folders of the golden shapes, written below `root` when first asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self._root = root
        self._manifest = golden_loader.load_manifest()

    def __missing__(self, name: str) -> Path:
        folder = self._root / name
        entry = self._manifest.shapes[name]
        written = seeded_checkpoint.write_checkpoint(folder, SHAPES[name], entry.seed)
        if written != entry.checkpoint_sha256:
            raise AssertionError(f"checkpoint {name} is not the one the goldens were made of")
        self[name] = folder
        return folder


def pages_for(sequences: Sequence[golden_loader.Sequence], page_tokens: int = 16) -> int:
    """Pages that hold all sequences at once."""
    return sum(-(-len(sequence.ids) // page_tokens) for sequence in sequences)


def side_by_side(ranks: Lockstep, sequences: Sequence[golden_loader.Sequence]) -> list[Array]:
    """Logits at each sequence's positions: all prompts in one step, then token by token."""
    requests = Requests(ranks)
    for slot, sequence in enumerate(sequences):
        requests.admit(slot, len(sequence.ids))
    prompts = {slot: s.ids[: s.prompt] for slot, s in enumerate(sequences)}
    logits = {slot: [part] for slot, part in requests.run(prompts).items()}
    for step in range(len(sequences[0].gaps)):
        tokens = {slot: [int(s.ids[s.prompt + step])] for slot, s in enumerate(sequences)}
        for slot, part in requests.run(tokens).items():
            logits[slot].append(part)
    return [np.concatenate(logits[slot])[s.positions] for slot, s in enumerate(sequences)]


def in_pieces(
    ranks: Lockstep, sequence: golden_loader.Sequence, pieces: Sequence[int]
) -> list[Array]:
    """Logits at the positions of one sequence, run alone in pieces (the rest is the last piece)."""
    rest = len(sequence.ids) - sum(pieces)
    requests = Requests(ranks)
    requests.admit(0, len(sequence.ids))
    return [requests.run_pieces(0, sequence.ids, (*pieces, rest))[sequence.positions]]


def float64_gate(found: Sequence[Array], sequences: Sequence[golden_loader.Sequence]) -> None:
    """Raises AssertionError outside 1e-9 (or where a value is not finite)."""
    for part, sequence in zip(found, sequences, strict=True):
        np.testing.assert_allclose(part, sequence.logits64, rtol=0, atol=FLOAT64_MAX)


def float32_gate(found: Sequence[Array], sequences: Sequence[golden_loader.Sequence]) -> None:
    """Raises AssertionError outside the float32 gates, over all rows of all sequences."""
    expected = np.concatenate([sequence.logits64 for sequence in sequences])
    difference = np.abs(np.concatenate(found) - expected)
    measured = {
        "relative_l2": float(np.linalg.norm(difference) / np.linalg.norm(expected)),
        "p99": float(np.percentile(difference, 99)),
        "max": float(difference.max()),
    }
    allowed = {"relative_l2": FLOAT32_RELATIVE_L2, "p99": FLOAT32_P99, "max": FLOAT32_MAX}
    for name, limit in allowed.items():
        if not measured[name] <= limit:
            raise AssertionError(f"{name} {measured[name]:.1e} is above {limit:.1e}")
    for part, sequence in zip(found, sequences, strict=True):
        first = list(sequence.positions).index(sequence.prompt - 1)
        choices = part[first : first + len(sequence.gaps)].argmax(axis=1)
        wrong = (choices != sequence.ids[sequence.prompt :]) & (sequence.gaps > GREEDY_GAP)
        if wrong.any():
            raise AssertionError(f"another greedy choice after {np.flatnonzero(wrong)} steps")
