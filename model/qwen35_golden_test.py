"""The engine against Hugging Face, for every golden shape, program and degree.

All sequences of a shape run side by side: one mixed prefill step, then batched decode steps. Gates:
float64 within 1e-9 of the end-to-end float64 logits, which alone sees some mistakes; float32
within relative L2 5e-5, p99 5e-4, max 1e-2, and the same greedy choice wherever the oracle's gap
exceeds 1e-3.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from model.lockstep import Lockstep, Requests, open_ranks
from program.qwen35 import Variant
from program.spec import Dtype
from testdata.golden import golden_loader, seeded_checkpoint
from testdata.golden.shapes import SHAPES

Float64 = npt.NDArray[np.float64]
MANIFEST = golden_loader.load_manifest()
CASES = [
    (name, variant, degree)
    for name in sorted(SHAPES)
    for variant in Variant
    for degree in MANIFEST.shapes[name].tp_degrees[variant.value.removeprefix("qwen35/")]
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoint folders by shape, written when first asked for."""

    class Written(dict[str, Path]):
        def __missing__(self, name: str) -> Path:
            folder = tmp_path_factory.mktemp(name)
            entry = MANIFEST.shapes[name]
            written = seeded_checkpoint.write_checkpoint(folder, SHAPES[name], entry.seed)
            assert written == entry.checkpoint_sha256
            self[name] = folder
            return folder

    return Written()


def side_by_side(
    ranks: Lockstep, sequences: list[golden_loader.Sequence]
) -> list[npt.NDArray[np.floating]]:
    """Logits at the positions of every sequence; the prompts in one step, then token by token."""
    requests = Requests(ranks)
    for slot, sequence in enumerate(sequences):
        requests.admit(slot, len(sequence.ids))
    logits = [
        [part]
        for part in _by_slot(
            requests.run({slot: s.ids[: s.prompt] for slot, s in enumerate(sequences)})
        )
    ]
    steps = len(sequences[0].ids) - sequences[0].prompt
    for step in range(steps):
        tokens = {slot: [s.ids[s.prompt + step]] for slot, s in enumerate(sequences)}
        for slot, part in requests.run(tokens).items():
            logits[slot].append(part)
    return [
        np.concatenate(parts)[sequence.positions]
        for parts, sequence in zip(logits, sequences, strict=True)
    ]


def _by_slot(parts: dict[int, npt.NDArray[np.floating]]) -> list[npt.NDArray[np.floating]]:
    return [parts[slot] for slot in sorted(parts)]


def ranks_for(
    folder: Path,
    variant: Variant,
    degree: int,
    compute: Dtype,
    sequences: list[golden_loader.Sequence],
) -> Lockstep:
    pages = sum(-(-len(sequence.ids) // 16) for sequence in sequences)
    return open_ranks(folder, variant, degree, compute=compute, slots=len(sequences), pages=pages)


@pytest.mark.parametrize(("name", "variant", "degree"), CASES)
def test_float64_within_1e9_of_the_oracle(
    folders: dict[str, Path], name: str, variant: Variant, degree: int
) -> None:
    sequences = golden_loader.load_short(name)
    ranks = ranks_for(folders[name], variant, degree, Dtype.FLOAT64, sequences)
    for found, sequence in zip(side_by_side(ranks, sequences), sequences, strict=True):
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, sequence.logits64, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "variant", "degree"), CASES)
def test_float32_within_the_gates(
    folders: dict[str, Path], name: str, variant: Variant, degree: int
) -> None:
    sequences = golden_loader.load_short(name)
    ranks = ranks_for(folders[name], variant, degree, Dtype.FLOAT32, sequences)
    found = side_by_side(ranks, sequences)
    assert all(part.dtype == np.float32 for part in found)
    check_float32(found, sequences)


def check_float32(
    found: list[npt.NDArray[np.floating]], sequences: list[golden_loader.Sequence]
) -> None:
    """The float32 gates over all rows of a shape."""
    expected = np.concatenate([sequence.logits64 for sequence in sequences])
    difference = np.abs(np.concatenate(found) - expected)
    assert np.linalg.norm(difference) / np.linalg.norm(expected) <= 5e-5
    assert np.percentile(difference, 99) <= 5e-4
    assert difference.max() <= 1e-2
    for part, sequence in zip(found, sequences, strict=True):
        first = list(sequence.positions).index(sequence.prompt - 1)
        choices = part[first : first + len(sequence.gaps)].argmax(axis=1)
        clear = sequence.gaps > 1e-3
        assert (choices == sequence.ids[sequence.prompt :])[clear].all()


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_states_after_a_prompt(folders: dict[str, Path], name: str) -> None:
    states = golden_loader.load_states(name)
    sequence = golden_loader.load_short(name)[states.sequence]
    prompt = sequence.ids[: sequence.prompt]
    for variant, degree in ((Variant.SHARDED, 1), (Variant.REPLICATED, 1)):
        ranks = ranks_for(folders[name], variant, degree, Dtype.FLOAT64, [sequence])
        requests = Requests(ranks)
        requests.admit(0, len(prompt))
        requests.run({0: prompt})
        state, config = ranks.primary.state, ranks.config
        for ordinal, layer in enumerate(config.linear_layers):
            np.testing.assert_allclose(
                state.recurrent[ordinal, 0], states.recurrent[layer], rtol=0, atol=1e-9
            )
            np.testing.assert_allclose(
                state.conv[ordinal, 0], states.conv[layer], rtol=0, atol=1e-9
            )
        for ordinal, layer in enumerate(config.full_layers):
            for cached, expected in ((state.keys, states.keys), (state.values, states.values)):
                np.testing.assert_allclose(
                    cached[ordinal][:, : len(prompt)], expected[layer], rtol=0, atol=1e-9
                )
