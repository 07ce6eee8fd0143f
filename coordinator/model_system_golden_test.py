"""The golden logits through the real `score` path: worker processes, sockets, the wire's binary32.

A subset that has every degree, both programs, both element types and every kind of checkpoint; the
whole product is in //coordinator:model_system_every_golden_test, which is run by hand, and, without
processes, in //model:qwen35_golden_test.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coordinator.command_score import ScoreResult, score
from coordinator.golden_scores import Folders, GoldenRun, gated, scorer
from coordinator.logprob_gates import (
    Differences,
    every_row,
    expected,
    float32_gate,
    float64_gate,
    found,
)
from coordinator.model_cases import bindings, score_options
from testdata.golden import golden_loader
from tools.python.tiers import mostly_exhaustive

RUNS = [
    GoldenRun("base", "sharded", 1, "float64"),
    GoldenRun("base", "sharded", 4, "float64"),
    GoldenRun("tp4", "replicated", 2, "float64"),
    GoldenRun("deep", "sharded", 2, "float32"),
    GoldenRun("odd_linear", "replicated", 4, "float32"),
    GoldenRun("mqa", "replicated", 1, "float64"),
    GoldenRun("eps_l2", "sharded", 2, "float64"),
    GoldenRun("bf16_public", "sharded", 2, "float64"),
    GoldenRun("bf16_text", "replicated", 2, "float32"),
]
# Both programs, element types of the arithmetic and of the checkpoint.
ALWAYS = {"tp4", "deep", "bf16_public"}
# Page edges, around the kernel, one token, all at once; and the tail token by token from there.
PAGE = 16
LONGEST = 128
CHUNKS: list[tuple[int | None, int | None]]
CHUNKS = [(1, None), (2, None), (3, None), (4, None), (PAGE - 1, None), (PAGE, None)]
CHUNKS += [
    (PAGE + 1, None),
    (LONGEST - 1, None),
    (None, None),
    (50, 77),
    (None, LONGEST),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("run", mostly_exhaustive(RUNS, lambda run: run.shape in ALWAYS), ids=str)
def test_logprobs_are_within_the_gates(
    folders: Folders, run: GoldenRun, record_testsuite_property: Callable[[str, object], None]
) -> None:
    sequences = golden_loader.load_short(run.shape)[2::3]
    record_testsuite_property(str(run), str(gated(folders[run.shape], run, sequences)))


@pytest.mark.parametrize(
    "chunks", [CHUNKS[5:7] + CHUNKS[-2:-1], pytest.param(CHUNKS, marks=pytest.mark.exhaustive)]
)
def test_any_chunks_and_any_tail_give_the_same(
    folders: Folders, chunks: list[tuple[int | None, int | None]]
) -> None:
    sequences = [one for one in golden_loader.load_short("base") if one.prompt == LONGEST]
    run = GoldenRun("base", "sharded", 2, "float64")
    with scorer(run.manifest(folders["base"]), sequences) as ranks:
        for chunk, tail in chunks:
            result = ranks.score(sequences[0], prefill_tokens=chunk, decode_from=tail)
            float64_gate(found([result], sequences), expected(sequences))


@pytest.mark.exhaustive
def test_degrees_agree_within_the_gates_of_binary32(folders: Folders) -> None:
    """Both programs and all degrees against one rank; one sequence, all of its positions."""
    (sequence,) = (one for one in golden_loader.load_short("tp4") if one.prompt == LONGEST)
    by_run = {}
    for program, degree in (("sharded", 1), ("sharded", 2), ("sharded", 4), ("replicated", 4)):
        run = GoldenRun("tp4", program, degree, "float32")
        with scorer(run.manifest(folders["tp4"]), [sequence]) as ranks:
            by_run[program, degree] = every_row(ranks.score(sequence, last=None))
    for engine in by_run.values():
        float32_gate(Differences.between(engine, by_run["sharded", 1]))


def rerun(folder: Path, tokens: Path) -> ScoreResult:
    manifest = GoldenRun("base", "sharded", 2, "float32").manifest(folder)
    return score(score_options(manifest, tokens, prefill_tokens=16), bindings())


def test_a_run_repeated_by_new_processes_is_the_same_to_the_bit(
    folders: Folders, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps(list(range(90))))
    assert rerun(folders["base"], tokens) == rerun(folders["base"], tokens)


@pytest.mark.exhaustive
def test_rounded_weights_are_outside_the_gates(folders: Folders) -> None:
    """A real run that is slightly wrong: weights held in bfloat16 that are stored in binary32."""
    sequences = golden_loader.load_short("base")[:4]
    run = GoldenRun("base", "sharded", 1, "float64")
    manifest = run.manifest(folders["base"], model__weights_dtype="bfloat16")
    with scorer(manifest, sequences) as ranks:
        engine = found([ranks.score(sequence) for sequence in sequences], sequences)
    with pytest.raises(AssertionError):
        float32_gate(Differences.between(engine, expected(sequences)))
    with pytest.raises(AssertionError):
        float64_gate(engine, expected(sequences))


@pytest.mark.parametrize("shift", [1e-6, -3e-7, np.nan])
def test_the_binary64_gate_sees_what_rounding_cannot_explain(shift: float) -> None:
    reference = expected(golden_loader.load_short("base")[:1])
    rounded = reference.astype(np.float32).astype(np.float64)
    float64_gate(rounded, reference)
    rounded[3, 5] += shift
    with pytest.raises(AssertionError):
        float64_gate(rounded, reference)


def test_the_binary32_gate_sees_noise_outliers_and_choices() -> None:
    reference = expected(golden_loader.load_short("base"))
    float32_gate(Differences.between(reference, reference))
    noisy = reference + 1e-3 * np.sign(np.sin(np.arange(reference.size))).reshape(reference.shape)
    outlier = reference.copy()
    outlier[0, 0] += 0.02
    chosen = reference.copy()
    chosen[:, :2] = chosen[:, 1::-1]
    for wrong in (noisy, outlier, chosen, np.full_like(reference, np.nan)):
        with pytest.raises(AssertionError):
            float32_gate(Differences.between(wrong, reference))
