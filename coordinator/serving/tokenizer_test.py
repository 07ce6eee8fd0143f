"""Real tokenizer files, and files that are none."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.serving.tokenizer import TOKENIZER_BYTES_MAX, TOKENIZER_FILE, TextTokenizer
from errors import ConfigError

TINY = Path("testdata/tiny-qwen35")
TOKENIZER = TextTokenizer(TINY)
VOCABULARY = 1024


def refused(folder: Path) -> ConfigError:
    with pytest.raises(ConfigError) as refusal:
        TextTokenizer(folder)
    assert [problem.field for problem in refusal.value.problems] == ["tokenizer"]
    return refusal.value


@given(st.text())
def test_every_text_comes_back(text: str) -> None:
    ids = TOKENIZER.encode(text)
    assert all(0 <= token < VOCABULARY for token in ids)
    assert TOKENIZER.decode(ids) == text


def test_no_text_has_no_tokens() -> None:
    assert TOKENIZER.encode("") == []
    assert TOKENIZER.decode([]) == ""


def test_the_end_of_text_token_is_no_text() -> None:
    """Its name in a prompt is text like any other, and alone it says nothing."""
    assert TOKENIZER.decode([0]) == ""


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"\xff", b'{"version":"1.0"}', b"{" * 10])
def test_files_that_are_no_tokenizer(tmp_path: Path, content: bytes) -> None:
    (tmp_path / TOKENIZER_FILE).write_bytes(content)
    assert "\n" not in refused(tmp_path).diagnostics()


def test_an_unknown_model_of_tokenizer(tmp_path: Path) -> None:
    document = json.loads((TINY / TOKENIZER_FILE).read_text("utf-8"))
    document["model"]["type"] = "Oracle"
    (tmp_path / TOKENIZER_FILE).write_text(json.dumps(document))
    refused(tmp_path)


def test_what_is_not_there_or_no_file(tmp_path: Path) -> None:
    refused(tmp_path)
    refused(tmp_path / "missing")
    (tmp_path / TOKENIZER_FILE).mkdir()
    refused(tmp_path)
    (tmp_path / TOKENIZER_FILE).rmdir()
    os.mkfifo(tmp_path / TOKENIZER_FILE)
    refused(tmp_path)


def test_a_file_that_is_far_too_large(tmp_path: Path) -> None:
    with (tmp_path / TOKENIZER_FILE).open("wb") as file:
        file.truncate(TOKENIZER_BYTES_MAX + 1)
    refused(tmp_path)


def test_other_threads_run_while_a_long_text_is_encoded() -> None:
    tokenizer = TextTokenizer(TINY)
    text = "x" * 1_000_000
    encoded: list[int] = []
    thread = threading.Thread(target=lambda: encoded.extend(tokenizer.encode(text)))
    thread.start()
    turns = 0
    while thread.is_alive():
        time.sleep(0.001)
        turns += 1
    # While the lock is kept there is one turn, when it is over, and one or two around it.
    assert turns > 10
    assert len(encoded) == len(tokenizer.encode("x" * 1000)) * 1000
