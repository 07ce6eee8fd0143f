"""The model subcommands of the built program: exit codes, what is on which stream, nothing left."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.built_program import Finished, coordinator, left_behind, run_to_end
from coordinator.model_cases import SMALL, WEIGHTS, WeightFile, small_model
from tools.python.tiers import mostly_exhaustive

NORM = "model.norm.weight"


def run(folder: Path, arguments: str) -> Finished:
    finished = run_to_end(coordinator(*arguments.split()), folder)
    assert left_behind(folder) == []
    return finished


def document(finished: Finished) -> Any:
    """Standard output is one JSON object on one line, and nothing else."""
    assert finished.out.count("\n") == 1
    return json.loads(finished.out)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a program is called; not as deep as a test's own folder, because of sockets' paths."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "tokens.json").write_text("[5, 6, 7, 8]")
        yield Path(name)


def test_score_writes_its_result_and_nothing_else(folder: Path) -> None:
    finished = run(folder, "score --tokens tokens.json --top 2 --tp 2 --program sharded")
    assert (finished.code, finished.err) == (0, "")
    result = document(finished)
    assert list(result) == ["positions", "logits_sha256"]
    assert len(result["logits_sha256"]) == 64
    assert [entry["position"] for entry in result["positions"]] == [0, 1, 2, 3]
    assert [entry["token"] for entry in result["positions"]] == [5, 6, 7, 8]
    assert all(len(entry["top"]) == 2 for entry in result["positions"])


def test_generate_and_plan_as_json(folder: Path) -> None:
    finished = run(folder, "generate --prompt Return --max-tokens 2 --json")
    assert (finished.code, finished.err) == (0, "")
    assert document(finished)["ok"] is True
    finished = run(folder, "plan --json")
    assert (finished.code, finished.err) == (0, "")
    assert document(finished)["collectives_per_step"] == 8


@pytest.mark.parametrize(
    ("arguments", "code"),
    mostly_exhaustive(
        [
            ("score --tokens missing.json", "config.invalid"),
            ("score --tokens tokens.json --tp 3", "config.degree"),
            ("score --tokens tokens.json --execution captured --tp 2", "config.invalid"),
            ("score --tokens tokens.json --checkpoint missing", "checkpoint.unreadable"),
            ("generate --prompt-tokens 5000", "request.range"),
            ("plan --rank-memory-bytes 1000000", "config.capacity"),
        ],
        lambda case: case[1] in ("config.degree", "request.range"),
    ),
)
def test_a_refusal_is_one_sentence_and_exit_code_2(folder: Path, arguments: str, code: str) -> None:
    finished = run(folder, arguments)
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith(f"coordinator: {code}: ")
    assert finished.err.count("\n") == 1


def test_a_refusal_as_json_names_the_code(folder: Path) -> None:
    finished = run(folder, "generate --prompt-tokens 5000 --json")
    assert finished.code == 2
    refusal = document(finished)
    assert refusal["ok"] is False
    assert refusal["error"]["code"] == "request.range"


def test_a_rank_that_refuses_its_weights_is_exit_code_3(folder: Path) -> None:
    """Norms are on every rank; the first to answer is rank 0."""
    model = small_model(folder / "model", SMALL)
    file = WeightFile.read(model / WEIGHTS)
    start = file.place(NORM).start
    file.data[start : start + 4] = bytes.fromhex("0000c07f")
    file.write(model / WEIGHTS)
    finished = run(folder, "score --tokens tokens.json --checkpoint model --check-weights --top 4")
    assert (finished.code, finished.out) == (3, "")
    assert finished.err.startswith("coordinator: protocol.closed: rank 0 in phase load: ")
    assert "checkpoint.values" in finished.err
    assert finished.err.count("\n") == 1
