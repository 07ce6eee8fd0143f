"""All Python is clean under mypy --strict; settings are in pyproject.toml."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.lint.build_deps import NOT_BUILT
from tools.lint.finding import files

ROOT = Path.cwd()
CACHE = ROOT / "tools/lint/mypy_cache"
INDEPENDENT = "verifier/independent/"


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is known of the wheels; it may be written to."""
    folder = tmp_path_factory.mktemp("cache")
    for path in CACHE.rglob("*"):
        if path.is_file():
            copy = folder / path.relative_to(CACHE)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    assert any(folder.iterdir())
    return folder


def run_mypy(folder: Path, paths: list[str], cache: Path) -> str:
    """Checks these files with `folder` as their import root; returns the report, empty if clean."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    command += ["--cache-dir", str(cache), "--no-error-summary", *paths]
    result = subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)
    return result.stdout + result.stderr


def test_the_tree(cache: Path) -> None:
    apart = (INDEPENDENT, *NOT_BUILT)
    paths = [path for path in files(ROOT, ".py") if not path.startswith(apart)]
    assert "errors/tree.py" in paths
    report = run_mypy(ROOT, paths, cache)
    # In full: a comparison of texts would be cut.
    if report:
        raise AssertionError(report)


def test_the_independent_verifier_alone(cache: Path) -> None:
    """Its modules import each other by their bare names, as they do in an empty directory."""
    paths = [path.removeprefix(INDEPENDENT) for path in files(ROOT, ".py") if INDEPENDENT in path]
    report = run_mypy(ROOT / INDEPENDENT, paths, cache) if paths else ""
    if report:
        raise AssertionError(report)


PLANTED = {
    "untyped.py": "def f(x):\n    return x\n",
    "wrong_type.py": "x: int = 'text'\n",
    "wrong_import.py": "from errors import NoSuchName\n",
    "types_of_a_wheel.py": "from runfiles import Runfiles\n\nx: int = Runfiles.Create()\n",
    "generated_types.py": "from manifest import run_manifest_pb2 as m\n\nm.RunManifest(absent=1)\n",
}


def test_planted_faults_are_found(tmp_path: Path, cache: Path) -> None:
    for name, text in PLANTED.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for package in ("errors", "manifest"):
        (tmp_path / package).symlink_to(ROOT / package)
    report = run_mypy(tmp_path, list(PLANTED), cache)
    assert [name for name in PLANTED if name not in report] == []
