"""The packer alone: bytes depend on names and contents, and the launcher on compiled modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.pack import pack

FILES = {
    "run": b"#!/bin/sh\n",
    "runfiles/a.py": b"#!/usr/bin/env python3\n",
    "runfiles/tool": b"\x7fELF",
    "runfiles/" + "long/" * 60 + "name": b"",
}


def test_bytes_do_not_depend_on_the_order_of_files(tmp_path: Path) -> None:
    pack.write(tmp_path / "a.tar", "x", FILES)
    pack.write(tmp_path / "b.tar", "x", dict(reversed(FILES.items())))
    assert (tmp_path / "a.tar").read_bytes() == (tmp_path / "b.tar").read_bytes()


@pytest.mark.parametrize(
    ("path", "data", "wanted"),
    [
        ("run", b"#!/bin/sh\n", True),
        ("tool", b"\x7fELF", True),
        ("module.py", b"#!/usr/bin/env python3\n", False),
        ("module.so", b"\x7fELF", False),
        ("data.txt", b"text", False),
    ],
)
def test_is_program(path: str, data: bytes, wanted: bool) -> None:
    assert pack.is_program(path, data) is wanted


def test_compiled_modules_fix_the_version() -> None:
    paths = ["numpy/core.cpython-311-x86_64-linux-gnu.so", "google/_upb/_message.abi3.so"]
    assert "needs CPython 3.11 on" in pack.launcher("x", "x/x", paths)


def test_versions_are_those_of_every_module() -> None:
    tags = {"core": (311, 312, 313), "fft": (311, 313, 314)}
    paths = [f"{name}.cpython-{tag}-x.so" for name, found in tags.items() for tag in found]
    assert pack.minors(paths) == [11, 13]
    assert "needs CPython 3.11, 3.13 on" in pack.launcher("x", "x/x", paths)


def test_without_them_any_later_version_will_do() -> None:
    paths = ["google/_upb/_message.abi3.so", "x/__pycache__/a.cpython-311.pyc"]
    assert "needs CPython 3.11 or later on" in pack.launcher("x", "x/x", paths)


def test_modules_without_a_common_version_are_refused() -> None:
    with pytest.raises(SystemExit):
        pack.launcher("x", "x/x", ["a.cpython-311-x.so", "b.cpython-312-x.so"])
