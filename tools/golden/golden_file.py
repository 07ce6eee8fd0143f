"""The arrays of one sequence and the writing of one .npz file."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from testdata.golden.golden_loader import FOLDER, file_sha256
from tools.golden.forward import Array, Reference, Run

# One forward over prompt and choices against prompt then single tokens, both float64.
MAX_STEP_DIFFERENCE = 1e-10


def gaps(run: Run, prompt: int) -> Array:
    """Best minus second best logit of the row that chose each decode token: [steps]."""
    best = np.sort(run.logits[prompt - 1 : -1], axis=1)
    return best[:, -1] - best[:, -2]


def one_sequence(
    wide: Reference,
    narrow: Reference,
    prompt: npt.NDArray[np.int64],
    positions: npt.NDArray[np.int64],
    piece: int,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The arrays of one sequence, and the states after its prompt.

    `positions` end with the last decode step, so they say how many steps there are.
    """
    steps = int(positions[-1]) + 1 - len(prompt)
    oracle = wide.run(prompt, steps, piece)
    if piece >= len(prompt):
        difference = np.abs(wide.forward(oracle.ids) - oracle.logits).max()
        if difference > MAX_STEP_DIFFERENCE:
            raise ValueError(f"stepping and one forward differ by {difference}")
    float32 = narrow.run(prompt, steps, piece, continuation=oracle.ids[len(prompt) :])
    arrays = {
        "ids": oracle.ids,
        "positions": positions,
        "logits64": oracle.logits[positions],
        "logits32": float32.logits[positions].astype(np.float32),
        "gaps": gaps(oracle, len(prompt)),
    }
    return arrays, oracle.states


def noise(arrays: dict[str, Any]) -> dict[str, float]:
    """Distance of the float32 rows from the float64 rows over a whole file."""
    names = sorted(name for name in arrays if name.endswith(".logits64"))
    exact = np.concatenate([arrays[name].ravel() for name in names])
    rounded = [arrays[name.replace("64", "32")].astype(np.float64).ravel() for name in names]
    error = np.abs(np.concatenate(rounded) - exact)
    values = {
        "max": float(error.max()),
        "p99": float(np.quantile(error, 0.99)),
        "relative_l2": float(np.linalg.norm(error) / np.linalg.norm(exact)),
    }
    return {name: float(f"{value:.3g}") for name, value in values.items()}


def write_file(
    file: str, arrays: dict[str, Any], prompts: Sequence[int], steps: int
) -> dict[str, Any]:
    """Save the arrays below testdata/golden; returns the file's manifest entry."""
    path = FOLDER / file
    path.parent.mkdir(exist_ok=True)
    np.savez(path, allow_pickle=False, **arrays)
    fields = {"file": file, "sha256": file_sha256(path), "prompts": list(prompts)}
    return {**fields, "steps": steps, "noise": noise(arrays)}
