"""The identity of the sources that produced the runs (evidence.md E4)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from findings import shown
from package import Unreadable, path_fault, read_regular


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
