"""Tokens one by one give the text of all at once; no character is ever told in parts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.serving.chat_template import ChatTemplate
from coordinator.serving.text import BYTE_OF_CHARACTER, ModelText
from coordinator.serving.tokenizer import TOKENIZER_FILE, TextTokenizer
from errors import ConfigError

TINY = Path("testdata/tiny-qwen35")
TOKENIZER = TextTokenizer(TINY)
TEXT = ModelText(TOKENIZER, ChatTemplate())
IDS = st.lists(st.integers(0, 1023), max_size=30)


def streamed(ids: list[int]) -> str:
    stream = TEXT.stream()
    return "".join(map(stream.feed, ids)) + stream.flush()


@given(IDS)
def test_any_tokens_give_what_the_library_gives_for_all_at_once(ids: list[int]) -> None:
    expected = TOKENIZER.decode(ids)
    assert TEXT.decode(ids) == expected
    assert streamed(ids) == expected


@given(st.text())
def test_text_comes_back_without_a_replacement_character(text: str) -> None:
    stream = TEXT.stream()
    told = ""
    for token_id in TEXT.encode(text):
        told += stream.feed(token_id)
        assert text.startswith(told)
    assert told + stream.flush() == text


def test_a_character_of_four_tokens_is_told_once_and_whole() -> None:
    ids = TEXT.encode("😀")
    assert len(ids) == 4
    stream = TEXT.stream()
    assert [stream.feed(token_id) for token_id in ids] == ["", "", "", "😀"]


def test_a_character_that_is_never_completed() -> None:
    stream = TEXT.stream()
    assert [stream.feed(token_id) for token_id in TEXT.encode("é😀")[:-1]][-1] == ""
    assert stream.flush() == "\ufffd"


def test_special_and_unused_tokens_are_no_text() -> None:
    assert TEXT.visible_bytes(0) == b""
    assert TEXT.token_bytes(0) == b"<|endoftext|>"
    assert TEXT.visible_bytes(1_000_000) == TEXT.token_bytes(1_000_000) == b""


def test_names_of_tokens() -> None:
    first, *_ = TEXT.encode("😀")
    assert TEXT.name(first) == "bytes:\\xf0"
    assert TEXT.name(0) == "<|endoftext|>"
    assert TEXT.name(TEXT.encode(" the")[0]) == " the"


def test_the_byte_alphabet_is_complete() -> None:
    assert sorted(BYTE_OF_CHARACTER.values()) == list(range(256))


def test_other_tokenizers_are_refused(tmp_path: Path) -> None:
    document = json.loads((TINY / TOKENIZER_FILE).read_text("utf-8"))
    document["decoder"] = {"type": "Fuse"}
    (tmp_path / TOKENIZER_FILE).write_text(json.dumps(document))
    with pytest.raises(ConfigError):
        ModelText.load(tmp_path)


def test_an_added_token_outside_the_alphabet(tmp_path: Path) -> None:
    document = json.loads((TINY / TOKENIZER_FILE).read_text("utf-8"))
    added = document["added_tokens"][0] | {"id": 1024, "content": "<é 字>", "special": False}
    document["added_tokens"].append(added)
    (tmp_path / TOKENIZER_FILE).write_text(json.dumps(document))
    text = ModelText.load(tmp_path)
    assert text.visible_bytes(1024) == "<é 字>".encode()
    assert text.decode([1024]) == TextTokenizer(tmp_path).decode([1024])
