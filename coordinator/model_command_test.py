"""The model subcommands' pages and files; what can't be written is known before a worker starts."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from coordinator.arguments import parse_arguments
from coordinator.model_cases import bindings, no_workers
from coordinator.model_command import run_model_command, write_whole
from coordinator.model_options import GenerateOptions, PlanOptions, ScoreOptions
from coordinator.model_run import ModelBindings
from coordinator.options import CallContext
from errors import ConfigError, TPError

TINY = Path("testdata/tiny-qwen35").absolute()


def page(folder: Path, arguments: str, given: ModelBindings | None = None) -> str:
    options = parse_arguments(arguments.split(), CallContext(folder, model=TINY))
    assert isinstance(options, PlanOptions | ScoreOptions | GenerateOptions)
    output = io.StringIO()
    assert run_model_command(options, bindings() if given is None else given, output) == 0
    return output.getvalue()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tokens.json").write_text("[5, 6, 7, 8]")
    return tmp_path


def document(text: str) -> Any:
    assert text.count("\n") == 1
    assert text.endswith("\n")
    return json.loads(text)


def test_scores_on_the_page_and_in_a_file_are_the_same(folder: Path) -> None:
    command = "score --tokens tokens.json --top 3 --positions last:2 --tp 1"
    shown = page(folder, command)
    assert page(folder, command + " --out scores.json") == ""
    assert (folder / "scores.json").read_text("ascii") == shown
    result = document(shown)
    assert list(result) == ["positions", "logits_sha256"]
    assert [list(entry) for entry in result["positions"]] == [["position", "token", "top"]] * 2
    assert [(entry["position"], entry["token"]) for entry in result["positions"]] == [
        (2, 7),
        (3, 8),
    ]
    for entry in result["positions"]:
        logprobs = [logprob for _, logprob in entry["top"]]
        assert logprobs == sorted(logprobs, reverse=True)
        assert all(logprob <= 0 for logprob in logprobs)
    assert sorted(path.name for path in folder.iterdir()) == ["scores.json", "tokens.json"]


def test_texts_and_tokens_of_generate(folder: Path) -> None:
    text = page(folder, "generate --prompt Return --max-tokens 3 --tp 1")
    assert text.startswith("Return")
    assert ", length, " in text.splitlines()[-1]
    tokens = page(folder, "generate --prompt-tokens 5,6 --max-tokens 3 --tp 1")
    first = tokens.splitlines()[0].split(",")
    assert len(first) == 3
    result = document(page(folder, "generate --prompt-tokens 5,6 --max-tokens 3 --tp 1 --json"))
    assert [str(token) for token in result["tokens"]] == first


def test_plan_starts_nothing(folder: Path) -> None:
    starts_nothing = bindings(no_workers)
    assert "collectives" in page(folder, "plan", starts_nothing)
    assert document(page(folder, "plan --json", starts_nothing))["tp"] == 2


@pytest.mark.parametrize("out", [".", "missing/scores.json", "tokens.json/below"])
def test_a_result_that_could_not_be_written_is_refused_before_a_worker_starts(
    folder: Path, out: str
) -> None:
    with pytest.raises(ConfigError) as refusal:
        page(folder, f"score --tokens tokens.json --out {out}", bindings(no_workers))
    assert [problem.field for problem in refusal.value.problems] == ["--out"]


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    path.write_text("old")
    write_whole(path, "new")
    assert path.read_text() == "new"
    (tmp_path / "other.json.partial").mkdir()
    with pytest.raises(TPError) as failure:
        write_whole(tmp_path / "other.json", "new")
    assert failure.value.code == "output.write"
    assert not (tmp_path / "other.json").exists()
