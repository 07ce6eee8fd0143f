"""All Python is clean under mypy --strict; settings are in pyproject.toml."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.lint.build_deps import NOT_BUILT
from tools.lint.finding import files

ROOT = Path.cwd()
INDEPENDENT = "verifier/independent/"


def run_mypy(folder: Path, paths: list[str]) -> str:
    """Checks these files with `folder` as their import root; returns the report, empty if clean."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    command += ["--cache-dir", os.devnull, "--no-error-summary", *paths]
    result = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    return result.stdout + result.stderr


def test_the_tree() -> None:
    apart = (INDEPENDENT, *NOT_BUILT)
    paths = [path for path in files(ROOT, ".py") if not path.startswith(apart)]
    assert "errors/tree.py" in paths
    report = run_mypy(ROOT, paths)
    # In full: a comparison of texts would be cut.
    if report:
        raise AssertionError(report)


def test_the_independent_verifier_alone() -> None:
    """Its modules import each other by their bare names, as they do in an empty directory."""
    paths = [path.removeprefix(INDEPENDENT) for path in files(ROOT, ".py") if INDEPENDENT in path]
    report = run_mypy(ROOT / INDEPENDENT, paths) if paths else ""
    if report:
        raise AssertionError(report)


PLANTED = {
    "untyped.py": "def f(x):\n    return x\n",
    "wrong_type.py": "x: int = 'text'\n",
    "wrong_import.py": "from errors import NoSuchName\n",
    "types_of_a_wheel.py": "from runfiles import Runfiles\n\nx: int = Runfiles.Create()\n",
    "generated_types.py": "from manifest import run_manifest_pb2 as m\n\nm.RunManifest(absent=1)\n",
}


def test_planted_faults_are_found(tmp_path: Path) -> None:
    for name, text in PLANTED.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for package in ("errors", "manifest"):
        (tmp_path / package).symlink_to(ROOT / package)
    report = run_mypy(tmp_path, list(PLANTED))
    assert [name for name in PLANTED if name not in report] == []
