"""Unpacked wheels: what is installed, what is left out, and the same bytes in every build."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from tools.python import wheel_tree

FILES = {
    "demo/__init__.py": "value = 1\n",
    "demo/part.py": "value = 2\n",
    "demo/template.py": "{% not python %}\n",
    "demo/tests/part_test.py": "",
    "demo-1.0.data/purelib/pure.py": "",
    "demo-1.0.data/platlib/plat.py": "",
    "demo-1.0.data/scripts/run": "#!/bin/sh\n",
    "demo-1.0.dist-info/METADATA": "Name: demo\n",
    "demo-1.0.dist-info/RECORD": "",
}


def make_wheel(path: Path) -> Path:
    """Writes the wheel of FILES."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in FILES.items():
            archive.writestr(name, text)
    return path


def build(tmp_path: Path, folder: str, *more: str) -> dict[str, bytes]:
    """Runs the tool in a folder of this name; returns its files without their place."""
    out = tmp_path / folder
    wheel = make_wheel(tmp_path / "demo-1.0-py3-none-any.whl")
    arguments = ["--out", str(out), "--label", "pypi/demo", "--exclude", "*/tests/*", *more]
    assert wheel_tree.main([*arguments, str(wheel)]) == 0
    files = [path for path in out.rglob("*") if path.is_file()]
    return {str(path.relative_to(out)): path.read_bytes() for path in files}


def test_contents(tmp_path: Path) -> None:
    sources = {name for name in build(tmp_path, "out") if not name.endswith(".pyc")}
    assert sources == {
        "demo-1.0.dist-info/METADATA",
        "demo/__init__.py",
        "demo/part.py",
        "demo/template.py",
        "plat.py",
        "pure.py",
    }


def test_only_some_files(tmp_path: Path) -> None:
    files = build(tmp_path, "out", "--only", "*/METADATA", "--only", "*_test.py")
    assert set(files) == {"demo-1.0.dist-info/METADATA"}


def test_modules_are_compiled_but_not_templates(tmp_path: Path) -> None:
    compiled = {Path(name).stem for name in build(tmp_path, "out") if name.endswith(".pyc")}
    assert {stem.split(".")[0] for stem in compiled} == {"__init__", "part", "plat", "pure"}


def test_bytes_do_not_depend_on_the_place(tmp_path: Path) -> None:
    assert build(tmp_path, "a") == build(tmp_path, "b/deeper")


@pytest.mark.parametrize(
    ("name", "installed"),
    [
        ("pkg/module.py", "pkg/module.py"),
        ("pkg-1.data/purelib/x.py", "x.py"),
        ("pkg-1.data/headers/x.h", None),
        ("pkg-1.dist-info/RECORD", None),
        ("pkg-1.dist-info/entry_points.txt", "pkg-1.dist-info/entry_points.txt"),
    ],
)
def test_installed_name(name: str, installed: str | None) -> None:
    assert wheel_tree.installed_name(name) == installed
