"""The engine against Hugging Face, for every golden shape, program and degree.

All sequences of a shape run side by side: one mixed prefill step, then batched decode steps.
"""

from __future__ import annotations

import numpy as np
import pytest

from model.golden_gates import Folders, float32_gate, float64_gate, pages_for, side_by_side
from model.lockstep import Requests, open_ranks
from model.ops import Array
from program.qwen35 import Variant
from program.spec import Dtype
from testdata.golden import golden_loader
from testdata.golden.shapes import SHAPES
from tools.python.tiers import mostly_exhaustive

MANIFEST = golden_loader.load_manifest()
CASES = [
    (name, variant, degree)
    for name in sorted(SHAPES)
    for variant in Variant
    for degree in MANIFEST.shapes[name].tp_degrees[variant.value.removeprefix("qwen35/")]
]


def in_every_run(case: tuple[str, Variant, int, Dtype]) -> bool:
    """Every shape once: both programs and both element types in turn, on two ranks if it can."""
    name, variant, degree, compute = case
    turn = sorted(SHAPES).index(name)
    degrees = MANIFEST.shapes[name].tp_degrees[variant.value.removeprefix("qwen35/")]
    wanted = (list(Variant)[turn % 2], list(Dtype)[turn // 2 % 2])
    return (variant, compute) == wanted and degree == (2 if 2 in degrees else degrees[0])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize(
    ("name", "variant", "degree", "compute"),
    mostly_exhaustive([(*case, compute) for case in CASES for compute in Dtype], in_every_run),
)
def test_logits_are_within_the_gates(
    folders: Folders, name: str, variant: Variant, degree: int, compute: Dtype
) -> None:
    sequences = golden_loader.load_short(name)
    ranks = open_ranks(
        folders[name],
        variant,
        degree,
        compute=compute,
        slots=len(sequences),
        pages=pages_for(sequences),
    )
    found = side_by_side(ranks, sequences)
    assert {part.dtype for part in found} == {np.dtype(compute.value)}
    gate = float64_gate if compute is Dtype.FLOAT64 else float32_gate
    gate(found, sequences)


def close(found: Array, expected: Array) -> None:
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    "name", mostly_exhaustive(sorted(SHAPES), lambda name: name in ("base", "conv3", "value_3x"))
)
def test_states_after_a_prompt_are_those_of_the_oracle(folders: Folders, name: str) -> None:
    states = golden_loader.load_states(name)
    sequence = golden_loader.load_short(name)[states.sequence]
    prompt = sequence.ids[: sequence.prompt]
    ranks = open_ranks(folders[name], Variant.SHARDED, 1, compute=Dtype.FLOAT64)
    requests = Requests(ranks)
    requests.admit(0, len(prompt))
    requests.run({0: prompt})
    held, config = ranks.primary.state, ranks.config
    for ordinal, layer in enumerate(config.linear_layers):
        close(held.recurrent[ordinal, 0], states.recurrent[layer])
        close(held.conv[ordinal, 0], states.conv[layer])
    for ordinal, layer in enumerate(config.full_layers):
        close(held.keys[ordinal][:, : len(prompt)], states.keys[layer])
        close(held.values[ordinal][:, : len(prompt)], states.values[layer])


def test_the_gates_refuse_what_is_not_a_number() -> None:
    sequences = golden_loader.load_short("base")[:1]
    broken = sequences[0].logits64.copy()
    float64_gate([broken], sequences)
    float32_gate([broken], sequences)
    broken[0, 0] = np.nan
    for gate in (float64_gate, float32_gate):
        with pytest.raises(AssertionError):
            gate([broken], sequences)
