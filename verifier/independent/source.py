"""The identity of the sources that produced the runs (evidence.md E4)."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from findings import shown
from package import Unreadable, path_fault, read_regular

# E4: where the sources begin, and the one that is no module.
FIRST = "evidence/runner.py"
GENERATED_FROM = "manifest/run_manifest.proto"
MAX_SOURCES = 2_000


def source_digest(files: Mapping[str, str]) -> str:
    """SHA-256 over the lines `<file digest>  <path>` in path order."""
    lines = "".join(f"{files[path]}  {path}\n" for path in sorted(files))
    return hashlib.sha256(lines.encode("ascii")).hexdigest()


def problems(source: Mapping[str, Any], root: Path | None) -> Iterator[str]:
    """What is wrong with the manifest's `source`; files are compared where `root` is given."""
    files: Mapping[str, str] = source["files"]
    if not files:
        yield "source names no file"
    outside = {path: fault for path in files if (fault := _path_fault(path)) is not None}
    for path, fault in outside.items():
        yield f"source path {shown(path)} {fault}"
    if outside:
        return
    if source["digest"] != source_digest(files):
        yield f"digest is {source['digest']}, recomputed {source_digest(files)}"
    if root is not None:
        yield from _compare(files, root)
        yield from _left_out(files, root)


def _path_fault(path: str) -> str | None:
    if not (path.isascii() and path.isprintable()):
        return "is not printable ASCII"
    return path_fault(path)


def _compare(files: Mapping[str, str], root: Path) -> Iterator[str]:
    """Compares each file. Unlike a package, a source tree may be one of links, as builds make."""
    for path, wanted in sorted(files.items()):
        try:
            got = hashlib.sha256(read_regular((root / path).resolve())).hexdigest()
        except (Unreadable, OSError, RuntimeError) as error:
            yield f"{path}: {error}"
            continue
        if got != wanted:
            yield f"{path} has digest {got}, the manifest {wanted}"


def _left_out(files: Mapping[str, str], root: Path) -> Iterator[str]:
    """Where the manifest's list is not the list of E4 that the tree gives."""
    try:
        wanted = needed_by(FIRST, root) | {GENERATED_FROM}
    except (Unreadable, OSError, RuntimeError, SyntaxError, ValueError, MemoryError) as error:
        yield f"the sources can't be followed from {FIRST}: {error}"
        return
    for path in sorted(wanted - files.keys()):
        yield f"{shown(path)} of the source tree is not in the manifest"
    for path in sorted(files.keys() - wanted):
        yield f"{shown(path)} of the manifest produces no run"


def needed_by(first: str, root: Path) -> set[str]:
    """`first` and every file of the tree that is imported from there on.

    Raises:
        Unreadable, OSError, RuntimeError: a file that can't be read.
        SyntaxError, ValueError, MemoryError: a file that is no Python, or too many files.
    """
    found: set[str] = set()
    waiting = [first]
    while waiting:
        path = waiting.pop()
        if path in found or not (root / path).is_file():
            continue
        found.add(path)
        if len(found) > MAX_SOURCES:
            raise ValueError(f"more than {MAX_SOURCES} sources")
        tree = ast.parse(read_regular((root / path).resolve()))
        for name in _imported(tree):
            waiting.extend(_places(name))
    return found


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def _places(name: str) -> list[str]:
    """The files that the module of this name may be, and those of the packages above it."""
    if name.endswith("_pb2"):
        return []
    parts = name.split(".")
    above = ["/".join([*parts[:count], "__init__.py"]) for count in range(1, len(parts) + 1)]
    return ["/".join(parts) + ".py", *above]
