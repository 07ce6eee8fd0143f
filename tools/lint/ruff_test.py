"""All Python is clean under ruff, and formatted by it; settings are in pyproject.toml."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from runfiles import Runfiles

from tools.lint.finding import files

ROOT = Path.cwd()


def ruff(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the ruff of the locked wheel."""
    runfiles = Runfiles.Create()
    assert runfiles is not None
    program = runfiles.Rlocation("pypi_ruff/bin/ruff")
    assert program is not None
    command = [program, *arguments, "--no-cache", "--config", str(ROOT / "pyproject.toml")]
    return subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)


@pytest.mark.parametrize("command", [("check",), ("format", "--check")], ids=["check", "format"])
def test_the_tree(command: tuple[str, ...]) -> None:
    paths = files(ROOT, ".py", ".pyi")
    assert "errors/tree.py" in paths
    result = ruff(*command, *paths)
    if result.returncode != 0:
        raise AssertionError(result.stdout + result.stderr)


@pytest.mark.parametrize(
    ("command", "planted"),
    [
        (("check",), "import os\n"),
        (("check",), "from . import relative\n\nprint(relative)\n"),
        (("check",), "x = '" + "long " * 30 + "'\n"),
        (("format", "--check"), "x = 'single'\n"),
    ],
    ids=["unused", "relative", "long line", "quotes"],
)
def test_a_planted_fault_is_found(tmp_path: Path, command: tuple[str, ...], planted: str) -> None:
    path = tmp_path / "planted.py"
    path.write_text(planted, encoding="utf-8")
    assert ruff(*command, str(path)).returncode == 1
