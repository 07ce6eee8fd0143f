"""Beyond toy lengths: prompts of 4,097 and 8,192 tokens in chunks; the shipped trained model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from model.golden_gates import Folders, float32_gate, float64_gate, pages_for
from model.lockstep import Lockstep, Requests, open_ranks
from model.ops import Array
from program.qwen35 import Variant
from program.spec import Dtype
from testdata.golden import golden_loader
from tools.python.tiers import mostly_exhaustive

CHUNK = 512
TRAINED = Path(__file__).resolve().parent.parent / "testdata" / "tiny-qwen35"
GATES = {Dtype.FLOAT32: float32_gate, Dtype.FLOAT64: float64_gate}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("golden"))


def run(
    folder: Path, sequence: golden_loader.Sequence, degree: int, compute: Dtype
) -> tuple[Array, Lockstep, list[Array]]:
    """Logits at the sequence's positions, and the recurrent state of rank 0 after the prompt."""
    ranks = open_ranks(
        folder, Variant.SHARDED, degree, compute=compute, pages=pages_for([sequence])
    )
    requests = Requests(ranks)
    requests.admit(0, len(sequence.ids))
    prompt = sequence.prompt
    chunks = [CHUNK] * (prompt // CHUNK) + ([prompt % CHUNK] if prompt % CHUNK else [])
    logits = [requests.run_pieces(0, sequence.ids[:prompt], chunks)]
    state = [executor.state.recurrent[:, 0].copy() for executor in ranks.executors]
    logits += [requests.run({0: [int(token)]})[0] for token in sequence.ids[prompt:]]
    return np.concatenate(logits)[sequence.positions], ranks, state


@pytest.mark.parametrize("index", [0, pytest.param(1, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    ("name", "degree", "compute"),
    mostly_exhaustive(
        [
            ("deep", 1, Dtype.FLOAT32),
            ("deep", 2, Dtype.FLOAT64),
            ("tp4", 4, Dtype.FLOAT32),
            ("tp4", 2, Dtype.FLOAT64),
        ],
        lambda case: case in (("deep", 1, Dtype.FLOAT32), ("tp4", 2, Dtype.FLOAT64)),
    ),
)
def test_long_prompts(folders: Folders, name: str, degree: int, compute: Dtype, index: int) -> None:
    sequence, states = golden_loader.load_long(name)[index]
    found, ranks, parts = run(folders[name], sequence, degree, compute)
    GATES[compute]([found], [sequence])
    state = np.concatenate(parts, axis=1)
    tolerance = 1e-9 if compute is Dtype.FLOAT64 else 1e-3
    for ordinal, layer in enumerate(ranks.config.linear_layers):
        expected = states.recurrent[layer]
        np.testing.assert_allclose(state[ordinal], expected, rtol=0, atol=tolerance)


@pytest.mark.parametrize("compute", list(Dtype))
@pytest.mark.parametrize("degree", mostly_exhaustive([1, 2, 4], lambda degree: degree == 2))
def test_the_trained_model(degree: int, compute: Dtype) -> None:
    sequences = golden_loader.load_trained()
    found = [run(TRAINED, sequence, degree, compute)[0] for sequence in sequences]
    GATES[compute](found, sequences)
