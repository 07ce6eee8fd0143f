"""Frames and bytes of real steps, counted from the ledger, are those of program.md, Q11."""

from __future__ import annotations

import json
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import NoReturn

import pytest

from coordinator.command_plan import plan
from coordinator.command_score import score
from coordinator.golden_scores import Folders, GoldenRun
from coordinator.ledger_view import ledger_lines
from coordinator.model_cases import MACHINE, bindings, score_options
from coordinator.options import LedgerOptions, ReplayOptions
from coordinator.recording import read_recording
from coordinator.replay import show_replay
from coordinator.run_files import LEDGER, LOADS
from coordinator.terminal import Style
from errors import ConfigError
from manifest.run_manifest import RunManifest
from testdata.golden.shapes import SHAPES, Shape
from testdata.golden.tensor_shapes import skipped_tensors, text_tensors
from tools.python.tiers import mostly_exhaustive
from wire.canonical import decode_canonical
from wire.ledger import Entry, read_ledger

TOP = 7
# Tokens of each step: a chunk, the rest of it, one alone, and none when the request leaves.
STEPS = [3, 2, 1, 0]
RUNS = [
    GoldenRun("base", "sharded", 2, "float32"),
    GoldenRun("base", "replicated", 4, "float32"),
    GoldenRun("conv3", "sharded", 1, "float64"),
    GoldenRun("conv3", "replicated", 2, "float64"),
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return Folders(tmp_path_factory.mktemp("golden"))


def stages(shape: Shape, program: str) -> list[str]:
    """The phases of a step, written once more from Q6."""
    phases = []
    for layer, letter in enumerate(shape.pattern):
        if letter == "F" or program == "sharded":
            phases.append(f"layers.{layer}.mixer")
        phases.append(f"layers.{layer}.mlp")
    return phases


def ledger_of(manifest: RunManifest, folder: Path) -> list[Entry]:
    """A run of STEPS that asks for every position."""
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps(list(range(sum(STEPS)))))
    options = {"top": TOP, "prefill_tokens": STEPS[0], "decode_from": 5}
    score(score_options(manifest, tokens, ledger=folder / "run", **options), bindings())
    return read_ledger((folder / "run" / LEDGER).read_bytes())


@pytest.mark.parametrize(
    "run", mostly_exhaustive(RUNS, lambda run: run in (RUNS[0], RUNS[3])), ids=str
)
def test_every_step_has_the_frames_and_bytes_of_the_formula(
    folders: Folders, tmp_path: Path, run: GoldenRun
) -> None:
    manifest = run.manifest(folders[run.shape])
    shape = SHAPES[run.shape]
    phases = stages(shape, run.program)
    item = 8 if run.compute == "float64" else 4
    entries = ledger_of(manifest, tmp_path)
    by_epoch = [list(group) for _, group in groupby(entries, key=lambda entry: entry.epoch)]
    hello, first, *others = by_epoch
    assert {entry.kind for entry in hello} == {"HELLO"}
    steps = [[e for e in first if e.kind not in ("ACK", "LOAD") and e.state != "LOAD_OPEN"]]
    steps += others
    assert len(steps) == len(STEPS)
    for tokens, step in zip(STEPS, steps, strict=True):
        demand_step(step, phases, run.degree, (max(1, tokens), shape.hidden))
        pairs = tokens * TOP
        expected = 2 * run.degree * len(phases) * max(1, tokens) * shape.hidden * item + 8 * pairs
        assert sum(entry.payload_bytes or 0 for entry in step) == expected
    demand_plan_agrees(manifest, steps[2], len(phases))


def demand_step(step: list[Entry], phases: list[str], ranks: int, shape: tuple[int, int]) -> None:
    """Kinds by rank and direction, names and shapes: nothing but partials and sums travels."""
    for rank in range(ranks):
        mine = [entry for entry in step if entry.rank == rank]
        sent = [entry for entry in mine if entry.direction == "receive"]
        received = [entry for entry in mine if entry.direction == "send"]
        kinds = [entry.kind for entry in sent]
        assert kinds == ["FENCE", *["PARTIAL"] * len(phases), "RESULT"]
        kinds = [entry.kind for entry in received]
        assert kinds == ["COMMAND", "COMMAND", *["REDUCTION"] * len(phases)]
        assert [entry.tensor for entry in sent[1:-1]] == [f"{name}.partial" for name in phases]
        assert [entry.tensor for entry in received[2:]] == [f"{name}.total" for name in phases]
        assert {entry.shape for entry in (*sent[1:-1], *received[2:])} == {shape}
    assert sum(entry.kind == "PARTIAL" for entry in step) == ranks * len(phases)


def demand_plan_agrees(manifest: RunManifest, step: list[Entry], collectives: int) -> None:
    """What `plan` says of a step with one token, without starting anything."""
    planned = plan(manifest, lambda: MACHINE)
    tensors = [entry for entry in step if entry.kind in ("PARTIAL", "REDUCTION")]
    assert planned.collectives == collectives
    assert planned.payload_bytes == sum(entry.payload_bytes or 0 for entry in tensors)
    framing = sum(36 + (entry.metadata_bytes or 0) for entry in tensors)
    assert planned.framing_bytes == framing


def test_a_run_leaves_the_reports_of_its_loads(folders: Folders, tmp_path: Path) -> None:
    run = GoldenRun("base", "sharded", 2, "float32")
    ledger_of(run.manifest(folders["base"]), tmp_path)
    lines = (tmp_path / "run" / LOADS).read_bytes().splitlines()
    reports = [decode_canonical(line) for line in lines]
    read, skipped = len(text_tensors(SHAPES["base"])), len(skipped_tensors(SHAPES["base"]))
    assert [(report["tensors"], report["skipped_tensors"]) for report in reports] == [
        (read, skipped),
        (read, skipped),
    ]


def test_a_run_can_be_looked_at_frame_by_frame(folders: Folders, tmp_path: Path) -> None:
    run = GoldenRun("base", "sharded", 2, "float32")
    entries = ledger_of(run.manifest(folders["base"]), tmp_path)
    recording = read_recording(tmp_path / "run")
    assert recording.entries == entries
    assert recording.manifest.program == "qwen35/sharded"
    options = LedgerOptions(tmp_path / "run", rank=1, kind="PARTIAL", phase="layers.0.mixer")
    shown = list(ledger_lines(recording, options, Style()))
    assert shown[-1] == f"{len(STEPS)} of {len(entries)} frames"
    with pytest.raises(ConfigError):
        show_replay(ReplayOptions(tmp_path / "run", "worker"), no_worker, StringIO(), Style())


def no_worker(rank: int) -> NoReturn:
    raise AssertionError("a worker was about to be started")
