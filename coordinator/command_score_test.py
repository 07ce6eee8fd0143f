"""`score`: what it reads, what it prints, and that nothing starts for what it must refuse."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from coordinator.command_score import TOKENS_BYTES_MAX, ScoreResult, read_tokens, score
from coordinator.model_cases import bindings, model_run, no_workers, score_options, small_model
from errors import ConfigError
from program.artifacts import ScoredPosition, TokenLogprob


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "model")


def refused_tokens(path: Path) -> ConfigError:
    with pytest.raises(ConfigError) as refusal:
        read_tokens(path)
    assert [problem.field for problem in refusal.value.problems] == ["--tokens"]
    return refusal.value


def test_tokens_are_a_json_list_of_integers(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(" [3, 0,\n 248319] ")
    assert read_tokens(path) == (3, 0, 248319)
    path.write_text("[]")
    assert read_tokens(path) == ()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"3",
        b"{}",
        b"[1,2",
        b"[1.0]",
        b"[true]",
        b'["1"]',
        b"[null]",
        b"[NaN]",
        b"[[1]]",
        b"\xff[1]",
        b"[1]]",
        b"[" * 100_000,
        b"[" + b"9" * 5_000 + b"]",
        b" " * (TOKENS_BYTES_MAX + 1),
    ],
)
def test_other_contents(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tokens.json"
    path.write_bytes(content)
    refused_tokens(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "missing", tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        refused_tokens(path)


@pytest.mark.parametrize(
    ("tokens", "options", "field"),
    [
        ([], {}, "tokens"),
        ([1, 96], {}, "tokens[1]"),
        ([1, -1], {}, "tokens[1]"),
        ([0] * 16_385, {}, "number of tokens"),
        ([1, 2], {"top": 97}, "--top"),
        ([1, 2], {"last": 3}, "--positions last"),
        ([1, 2], {"decode_from": 3}, "--decode-from"),
        ([1, 2], {"prefill_tokens": 513}, "--prefill-tokens"),
    ],
)
def test_what_the_model_cannot_run_is_refused_before_a_worker_starts(
    folder: Path, tmp_path: Path, tokens: list[int], options: dict[str, int], field: str
) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(json.dumps(tokens))
    with pytest.raises(ConfigError) as refusal:
        score(score_options(model_run(folder), path, **options), bindings(no_workers))
    assert [problem.field for problem in refusal.value.problems] == [field]
    assert refusal.value.exit_code == 2


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"ranks": 3}, "config.degree"),
        ({"model__device_ordinals": "5,6"}, "config.devices"),
        ({"model__rank_memory_bytes": 1_000_000}, "config.capacity"),
        ({"model__max_step_tokens": 100_000}, "config.invalid"),
        ({"model__checkpoint": "/missing"}, "checkpoint.unreadable"),
    ],
)
def test_runs_that_cannot_be_are_refused_before_a_worker_starts(
    folder: Path, tmp_path: Path, fields: dict[str, object], code: str
) -> None:
    path = tmp_path / "tokens.json"
    path.write_text("[1]")
    with pytest.raises(ConfigError) as refusal:
        score(score_options(model_run(folder, **fields), path), bindings(no_workers))
    assert (refusal.value.code, refusal.value.exit_code) == (code, 2)


def test_a_ledger_folder_that_cannot_be_written_is_refused_before_a_worker_starts(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "tokens.json"
    path.write_text("[1]")
    options = score_options(model_run(folder), path, ledger=path / "below")
    with pytest.raises(ConfigError) as refusal:
        score(options, bindings(no_workers))
    assert [problem.field for problem in refusal.value.problems] == ["--ledger"]


def test_the_result_has_exactly_the_published_keys() -> None:
    top = (TokenLogprob(5, -0.25), TokenLogprob(0, -1.5))
    result = ScoreResult((ScoredPosition(0, 7, 9, top, "ab" * 32),), "cd" * 32)
    assert json.loads(result.to_json()) == {
        "positions": [{"position": 7, "token": 9, "top": [[5, -0.25], [0, -1.5]]}],
        "logits_sha256": "cd" * 32,
    }
