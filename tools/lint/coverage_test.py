"""No tracked file escapes the checks. This one test looks at the real working tree.

Everything else in this package is hermetic: it sees what the packages list. Here the tracked files
are asked for from git, or by walking where the tree is not a clone, and each source must be among
the listed ones. The wording rule is applied to documents and data here too.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tools.lint import wording
from tools.lint.finding import GENERATED, Finding, require_none

LISTED = (".bzl", ".py", ".pyi", ".sh", "BUILD.bazel", "WORKSPACE")
# Larger files are arrays and weights, without words.
TEXT_BYTES_MAX = 2_000_000
NOT_TRACKED = (".git", ".hypothesis", ".mypy_cache", ".pytest_cache", ".ruff_cache", "__pycache__")

HERE = Path.cwd()
TREE = (HERE / "BUILD.bazel").resolve().parent


def _walk(folder: Path) -> Iterator[str]:
    for path in sorted(folder.iterdir()):
        if path.name in NOT_TRACKED or path.name.startswith("bazel-") or path == TREE / "out":
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)
        elif path.is_file():
            yield str(path.relative_to(TREE))


def tracked() -> list[str]:
    """Every tracked file that exists, relative to the tree's root."""
    git = shutil.which("git")
    if git is None or not (TREE / ".git").exists():
        return list(_walk(TREE))
    # A tree of another owner is read all the same: nothing is run from it.
    command = [git, "-c", "safe.directory=*", "-C", str(TREE), "ls-files", "-z", "--cached"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [path for path in output.split("\0") if path and (TREE / path).is_file()]


def test_every_tracked_source_is_checked() -> None:
    missing = [
        Finding(
            path, 0, "coverage", "call checked_sources() and list it in tools/lint/packages.bzl"
        )
        for path in tracked()
        if path.endswith(LISTED) and not path.endswith(GENERATED) and not (HERE / path).exists()
    ]
    require_none(missing)


def test_a_missing_file_would_be_noticed() -> None:
    assert not (HERE / "coordinator/absent.py").exists()
    assert (HERE / "tools/lint/coverage_test.py").exists()


def test_wording_of_every_text() -> None:
    found: list[Finding] = []
    for path in tracked():
        data = (TREE / path).read_bytes()
        if len(data) > TEXT_BYTES_MAX or b"\0" in data[:4096]:
            continue
        found += wording.check(path, data.decode("utf-8", "replace"))
    require_none(found)
