"""The committed package, read as data: what tests alter, and what a rebuilt one is held against."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from evidence.package import read_package

# Relative to the repository, or to the runfiles of a test.
PACKAGE = Path("testdata/evidence")


@lru_cache(maxsize=1)
def committed_files() -> dict[str, bytes]:
    """Every file of the committed package; read once, never to be altered in place."""
    return read_package(PACKAGE)


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write files below a folder, as regular files; returns the folder."""
    for path, data in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return folder
