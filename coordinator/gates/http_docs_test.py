"""docs/serving.md is true: every block of it runs, and prints what it is shown to print."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.gates.doc_blocks import Block, Reader, blocks, differences, shape

DOCUMENT = Path("docs/serving.md")


@pytest.fixture
def reader() -> Iterator[Reader]:
    # A short path: the ranks' sockets are below it.
    with tempfile.TemporaryDirectory() as name:
        reading = Reader(Path(name))
        yield reading
        reading.kill()


@pytest.mark.parametrize("servers", [1, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_every_example_runs(reader: Reader, servers: int) -> None:
    """Of the first server of the document, or of all."""
    found = blocks(DOCUMENT.read_text("utf-8"))
    assert {block.language for block in found} == {"sh", "python", "json", "text"}
    assert len([block for block in found if block.starts_a_server]) == 4
    for block in found:
        servers -= block.starts_a_server
        if servers < 0:
            break
        reader.read(block)
    reader.close()


def test_blocks_are_found_with_their_lines() -> None:
    text = "a\n\n```sh\nx\ny\n```\n\n```json\n{}\n```\n"
    assert blocks(text) == [Block("sh", "x\ny\n", 3), Block("json", "{}\n", 8)]


def test_every_fence_of_the_document_is_a_block() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert text.count("```") == 2 * len(blocks(text))


def test_a_block_that_fails_is_noticed(reader: Reader) -> None:
    for language, text in [("sh", "false\n"), ("sh", "cat none | true\n"), ("python", "1 / 0\n")]:
        with pytest.raises(AssertionError, match="line 7"):
            reader.read(Block(language, text, 7))
    with pytest.raises(AssertionError, match="nobody runs ruby"):
        reader.read(Block("ruby", "", 1))


def test_other_output_is_noticed(reader: Reader) -> None:
    reader.read(Block("sh", "echo 200 done\n", 1))
    reader.read(Block("text", "404 done\n", 2))
    with pytest.raises(AssertionError):
        reader.read(Block("text", "200 undone\n", 2))


def test_json_agrees_in_keys_and_types_alone() -> None:
    shown = Block("json", json.dumps({"a": [1, 2], "b": {"c": "x", "d": None}}), 1)
    assert differences(shown, '{"b": {"d": null, "c": "y"}, "a": [0.5]}') == []
    for printed in ('{"a": [1]}', '{"a": ["1"], "b": {"c": "x", "d": null}}', "[]"):
        assert differences(shown, printed) != []
    assert shape(True) == "bool"
