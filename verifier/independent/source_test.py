"""The identity of the sources, with and without the tree they came from."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import pytest
import sample_package as sample
import source
import verify

MATRIX = {sample.CLEAN: sample.small_matrix()[sample.CLEAN]}


@lru_cache(maxsize=1)
def valid() -> sample.Files:
    return sample.build(MATRIX)


CODE = "package.source"
SOURCE_TREES: dict[str, tuple[dict[str, bytes], bool]] = {
    "the same": ({}, True),
    "files that decide nothing": (
        {
            "wire/frame_test.py": b"",
            "manifest/run_manifest_pb2.py": b"",
            "wire/notes.md": b"",
            "tools/x.py": b"import wire.frame\n",
        },
        True,
    ),
    "a byte changed": ({"wire/frame.py": b"FRAME = 2\n"}, False),
    "a source that is not named": ({"worker/absent.py": b""}, False),
    "a package that is not named": ({"wire/__init__.py": b""}, False),
    "a source that is no longer used": (
        {"evidence/runner.py": b"from worker import main\n"},
        False,
    ),
    "a source that is no Python": ({"worker/main.py": b"def\0"}, False),
}


@pytest.mark.parametrize("name", SOURCE_TREES)
def test_the_source_tree_is_compared(name: str, tmp_path: Path) -> None:
    changed, holds = SOURCE_TREES[name]
    tree = sample.write(sample.SOURCES | changed, tmp_path / "tree")
    package = sample.write(valid(), tmp_path / "package")
    verdict = verify.verify(package, source=tree, matrix=MATRIX)
    assert {finding.code for finding in verdict.findings} == (set() if holds else {CODE})


def test_a_source_that_is_not_there(tmp_path: Path) -> None:
    tree = sample.write({"wire/frame.py": sample.SOURCES["wire/frame.py"]}, tmp_path / "tree")
    package = sample.write(valid(), tmp_path / "package")
    verdict = verify.verify(package, source=tree, matrix=MATRIX)
    assert {finding.code for finding in verdict.findings} == {CODE}


def test_the_digest_is_over_sorted_lines() -> None:
    assert source.source_digest({"b": "2" * 64, "a": "1" * 64}) == sample.sha256(
        f"{'1' * 64}  a\n{'2' * 64}  b\n".encode("ascii")
    )
