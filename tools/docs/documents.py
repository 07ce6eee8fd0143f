"""What a document promises about the tree: links, targets and tests that exist."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from posixpath import dirname, join, normpath
from typing import Final

_LINK: Final = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
_LABEL: Final = re.compile(
    r"(?<![\w/:])//([a-z0-9_/-]*)(?::([A-Za-z0-9_.-]+))?(?=[\s`)|]|/\.\.\.|$)"
)

# `package/file_test.py`, `package/file_test.py::test_name`, or `::test_name` of the file before.
_TEST: Final = re.compile(r"`([a-z0-9_/-]+_test\.py)?(?:::(test_[a-z0-9_]+))?`")


def broken_links(path: str, text: str, exists: Callable[[str], bool]) -> Iterator[str]:
    """Relative links of the document at `path` that lead to no file or folder."""
    for match in _LINK.finditer(text):
        target = match.group(1)
        if "://" not in target and not exists(normpath(join(dirname(path), target))):
            yield f"{path}: link to {target}"


def missing_targets(
    path: str, text: str, names_of: Callable[[str], frozenset[str] | None]
) -> Iterator[str]:
    """Bazel labels in the document whose package or target does not exist.

    names_of: names of the targets of a package, None for a folder that is no package.
    """
    for match in _LABEL.finditer(text):
        package, target = match.group(1).rstrip("/"), match.group(2)
        if text[match.end() :].startswith("/...") or not package:
            continue
        names = names_of(package)
        if names is None or (target is not None and target not in names):
            yield f"{path}: target {match.group(0)}"


def missing_tests(path: str, text: str, text_of: Callable[[str], str | None]) -> Iterator[str]:
    """Tests that the document names and that do not exist.

    text_of: the source of a file, None where there is no such file.
    """
    file, source = "", ""
    for match in _TEST.finditer(text):
        name = match.group(2)
        if match.group(1) is not None:
            file = match.group(1)
            found = text_of(file)
            source = found or ""
            if found is None:
                yield f"{path}: file {file}"
        if name is not None and f"def {name}(" not in source:
            yield f"{path}: test {file}::{name}"
