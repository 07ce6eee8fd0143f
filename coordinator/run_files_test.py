"""A run's folder: complete files or none, and one clear refusal."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

import pytest

from coordinator.run_files import OBSERVATIONS, OUTPUT, RunFiles
from errors import ConfigError, TPError


def test_earlier_output_is_gone_before_the_run(tmp_path: Path) -> None:
    (tmp_path / OUTPUT).write_bytes(b"old")
    RunFiles(tmp_path)
    assert not (tmp_path / OUTPUT).exists()


def test_folders_are_made(tmp_path: Path) -> None:
    files = RunFiles(tmp_path / "a" / "b")
    files.write(OUTPUT, b"data")
    assert (tmp_path / "a" / "b" / OUTPUT).read_bytes() == b"data"
    assert [path.name for path in files.directory.iterdir()] == [OUTPUT]


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_a_file_in_the_way_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError) as refusal:
        RunFiles(tmp_path / name)
    assert refusal.value.problems[0].field == "--out"


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    files = RunFiles(tmp_path)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(TPError) as failure:
        files.write(OUTPUT, b"data")
    assert failure.value.code == "output.write"
    assert list(tmp_path.iterdir()) == []


def test_observations_are_canonical_lines(tmp_path: Path) -> None:
    RunFiles(tmp_path).write_observations([{"b": 1, "a": "x"}, {"pid": 7}])
    assert (tmp_path / OBSERVATIONS).read_bytes() == b'{"a":"x","b":1}\n{"pid":7}\n'


def test_a_folder_belongs_to_one_run_at_a_time(tmp_path: Path) -> None:
    """The second run is refused before it removes anything of the first."""
    first = RunFiles(tmp_path)
    first.write(OUTPUT, b"first")
    with pytest.raises(ConfigError) as refusal:
        RunFiles(tmp_path, "--ledger")
    assert refusal.value.problems[0].field == "--ledger"
    assert (tmp_path / OUTPUT).read_bytes() == b"first"
    del first
    RunFiles(tmp_path)
    assert not (tmp_path / OUTPUT).exists()


def test_a_file_system_without_locks_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(descriptor: int, operation: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "no locks")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    RunFiles(tmp_path).write(OUTPUT, b"data")
    assert (tmp_path / OUTPUT).read_bytes() == b"data"
