"""Every known mistake in formula, packing, loading or sharding is planted and must be caught.

The gates are those of model/golden_gates.py over one golden sequence in small pieces, on the shape
that exposes the mistake; without a mutant both pass.
"""

from __future__ import annotations

import numpy as np
import pytest

from model import gated_delta, qwen35_loading_mutants, qwen35_mutants
from model.golden_gates import Folders, float32_gate, float64_gate, in_pieces
from model.lockstep import open_ranks
from model.qwen35_mutants import Mutant, nothing, own_rule, state_changed
from program.qwen35 import Variant
from program.spec import Dtype
from testdata.golden import golden_loader
from tools.python.tiers import mostly_exhaustive

# Pieces of a prompt of 128 tokens: longer and shorter than block and kernel, single tokens.
PIECES = (63, 1, 2, 1, 59, 1)
SEQUENCE = 11
MUTANTS = {**qwen35_mutants.MUTANTS, **qwen35_loading_mutants.MUTANTS}
# An eps on the mean instead of the sum is inside float32 noise on ordinary weights.
FLOAT64_ONLY = {"l2_eps_mean"}
# exp(G) exp(-G) overflows float64 only for decays that no golden shape has
# (gated_delta_test.py shows it there).
FLOAT32_ONLY = {"chunk_ratio"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("golden"))


def gate(folders: Folders, mutant: Mutant, compute: Dtype) -> None:
    """Raises AssertionError when the engine, as it is now, fails the gate of `compute`."""
    sequence = golden_loader.load_short(mutant.shape)[SEQUENCE]
    ranks = open_ranks(folders[mutant.shape], Variant.SHARDED, mutant.degree, compute=compute)
    mutant.tamper(ranks)
    with np.errstate(all="ignore"):
        found = in_pieces(ranks, sequence, PIECES)
    check = float64_gate if compute is Dtype.FLOAT64 else float32_gate
    check(found, [sequence])


@pytest.mark.parametrize(
    "compute", mostly_exhaustive(Dtype, lambda compute: compute is Dtype.FLOAT64)
)
@pytest.mark.parametrize("shape", sorted({mutant.shape for mutant in MUTANTS.values()}))
def test_without_a_mutant_the_gates_pass(folders: Folders, shape: str, compute: Dtype) -> None:
    gate(folders, Mutant(shape=shape), compute)


def test_own_rule_and_rule_wrapper_change_nothing_by_themselves(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_rule(gated_delta.gated_delta_step)(monkeypatch)
    state_changed(nothing, nothing)(monkeypatch)
    gate(folders, Mutant(), Dtype.FLOAT64)


@pytest.mark.parametrize(
    "name",
    mostly_exhaustive(
        sorted(set(MUTANTS) - FLOAT32_ONLY), lambda name: name in sorted(MUTANTS)[::3]
    ),
)
def test_float64_catches(folders: Folders, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    MUTANTS[name].plant(monkeypatch)
    with pytest.raises(AssertionError):
        gate(folders, MUTANTS[name], Dtype.FLOAT64)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", sorted(set(MUTANTS) - FLOAT64_ONLY))
def test_float32_catches(folders: Folders, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    MUTANTS[name].plant(monkeypatch)
    with pytest.raises(AssertionError):
        gate(folders, MUTANTS[name], Dtype.FLOAT32)
