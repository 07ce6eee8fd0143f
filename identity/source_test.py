"""The source identity names exactly the files that were built from, with their digests."""

from __future__ import annotations

import hashlib
from pathlib import Path

from identity.source import SOURCE_DIGEST, SOURCE_FILES


def test_digest_follows_the_specification() -> None:
    lines = "".join(f"{SOURCE_FILES[path]}  {path}\n" for path in sorted(SOURCE_FILES))
    assert hashlib.sha256(lines.encode("ascii")).hexdigest() == SOURCE_DIGEST


def test_paths_are_sorted_and_relative_to_the_repository() -> None:
    assert list(SOURCE_FILES) == sorted(SOURCE_FILES)
    assert "identity/source.py" in SOURCE_FILES
    assert "errors/__init__.py" in SOURCE_FILES


def test_tests_are_not_part_of_it() -> None:
    assert [path for path in SOURCE_FILES if path.endswith("_test.py")] == []


def test_a_file_has_the_digest_that_is_recorded() -> None:
    here = Path(__file__).with_name("source.py")
    assert SOURCE_FILES["identity/source.py"] == hashlib.sha256(here.read_bytes()).hexdigest()
