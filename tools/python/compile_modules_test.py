"""Bytecode of modules: the same bytes wherever it is made, and never run for another source."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tools.python.compile_modules import main

TAG = str(sys.implementation.cache_tag)


def compiled(folder: Path, text: str) -> Path:
    """The bytecode of a module `m` of this text, at its place beside it."""
    folder.mkdir()
    (folder / "m.py").write_text(text, encoding="utf-8")
    output = folder / "__pycache__" / f"m.{TAG}.pyc"
    assert main(["--cache-tag", TAG, "p/m.py", str(folder / "m.py"), str(output)]) == 0
    return output


def loaded(source: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("m", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_same_bytes_everywhere(tmp_path: Path) -> None:
    assert compiled(tmp_path / "a", "X = 1\n").read_bytes() == (
        compiled(tmp_path / "b", "X = 1\n").read_bytes()
    )


def test_it_is_what_is_imported(tmp_path: Path) -> None:
    output = compiled(tmp_path / "a", "X = 1\n")
    before = output.read_bytes()
    module = loaded(tmp_path / "a" / "m.py")
    assert (module.X, module.__cached__) == (1, str(output))
    assert output.read_bytes() == before


def test_a_changed_source_is_compiled_again(tmp_path: Path) -> None:
    compiled(tmp_path / "a", "X = 1\n")
    (tmp_path / "a" / "m.py").write_text("X = 2\n", encoding="utf-8")
    assert loaded(tmp_path / "a" / "m.py").X == 2


def test_another_interpreter_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cache-tag", "cpython-399"]) == 2
    assert "cpython-399" in capsys.readouterr().err
