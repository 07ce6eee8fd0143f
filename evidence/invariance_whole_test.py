"""The whole package in fresh interpreters of every kind: the same bytes, figure and report too."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.compare import explain
from evidence.package import read_package
from evidence.rebuilding import SETTINGS, rebuild
from evidence.tampering.committed import committed_files


@pytest.mark.parametrize("name", SETTINGS)
def test_the_same_bytes(name: str, tmp_path: Path) -> None:
    rebuild(SETTINGS[name], tmp_path / "out")
    assert explain(committed_files(), read_package(tmp_path / "out")) == ""
