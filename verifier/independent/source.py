"""The identity of the sources that produced the runs (evidence.md E4)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from findings import shown
from package import Unreadable, path_fault, read_regular

FOLDERS = (
    "coordinator",
    "errors",
    "identity",
    "manifest",
    "model",
    "program",
    "wire",
    "worker",
)
MAX_SOURCES = 10_000


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
    """Sources of E4's folders that the manifest does not name."""
    seen = 0
    for top in FOLDERS:
        for folder, inner, names in os.walk(root / top):
            at = Path(folder)
            inner[:] = sorted(name for name in inner if not (at / name / "BUILD.bazel").exists())
            for name in sorted(names):
                seen += 1
                if seen > MAX_SOURCES:
                    yield f"more than {MAX_SOURCES} files in the folders of the sources"
                    return
                path = (at / name).relative_to(root).as_posix()
                if _decides_a_run(name) and path not in files:
                    yield f"{shown(path)} of the source tree is not in the manifest"


def _decides_a_run(name: str) -> bool:
    return name.endswith((".py", ".proto")) and not name.endswith(("_test.py", "_pb2.py"))
