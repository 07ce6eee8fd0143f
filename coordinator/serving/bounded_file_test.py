"""A bounded file holds whole chunks, whatever the disk does."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from coordinator.serving.bounded_file import BoundedFile
from errors import ConfigError


def test_chunks_up_to_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = BoundedFile(path, 10)
    assert [file.append(b"12345"), file.append(b"678901"), file.append(b"67890")] == [
        True,
        False,
        True,
    ]
    file.close()
    file.close()
    assert not file.append(b"")
    assert path.read_bytes() == b"1234567890"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_what_was_there_is_emptied_or_kept(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    with pytest.raises(FileExistsError):
        BoundedFile(path, 10, exclusive=True)
    assert path.read_bytes() == b"old"
    BoundedFile(path, 10).close()
    assert path.read_bytes() == b""


def test_rotation(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = BoundedFile(path, 10)
    for text in (b"one", b"two", b"three"):
        assert file.append(text)
        assert text == b"three" or file.rotate()
    file.close()
    assert path.read_bytes() == b"three"
    assert (tmp_path / "f.1").read_bytes() == b"two"


def test_a_rotation_takes_nothing_that_was_there(tmp_path: Path) -> None:
    """Not what a link points to, nor the mode of a file that was left behind."""
    path, victim = tmp_path / "f", tmp_path / "victim"
    victim.write_bytes(b"kept")
    (tmp_path / "f.new").symlink_to(victim)
    file = BoundedFile(path, 10)
    assert file.append(b"one")
    assert file.rotate()
    assert file.append(b"two")
    file.close()
    assert victim.read_bytes() == b"kept"
    assert not path.is_symlink()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"two"


def test_a_rotation_that_fails_keeps_the_file(tmp_path: Path) -> None:
    path = tmp_path / "f"
    file = BoundedFile(path, 10)
    assert file.append(b"one")
    (tmp_path / "f.1").mkdir()
    assert not file.rotate()
    assert file.append(b"two")
    file.close()
    assert path.read_bytes() == b"onetwo"


@pytest.mark.parametrize("step", ["open", "first name", "second name"])
def test_a_rotation_that_fails_anywhere_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path = tmp_path / "f"
    file = BoundedFile(path, 10)
    assert file.append(b"one")
    replace = Path.replace

    def failing(self: Path, target: Path) -> Path:
        if (self == path) == (step == "first name") and not str(self).endswith(".1"):
            raise OSError(28, "No space left on device")
        return replace(self, target)

    if step == "open":
        (tmp_path / "f.new").mkdir()
    else:
        monkeypatch.setattr(Path, "replace", failing)
    assert not file.rotate()
    monkeypatch.undo()
    assert file.append(b"two")
    assert path.read_bytes() == b"onetwo"
    assert not (tmp_path / "f.new").is_file()
    if step != "open":
        assert file.rotate()
        assert (path.read_bytes(), (tmp_path / "f.1").read_bytes()) == (b"", b"onetwo")
    file.close()


class FullDisk:
    """Takes a few bytes of each chunk, then no more, as long as it is full."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.full = True
        self._written = os.pwrite
        self._calls = 0
        monkeypatch.setattr(os, "pwrite", self._pwrite)

    def _pwrite(self, descriptor: int, data: bytes, offset: int) -> int:
        if not self.full:
            return self._written(descriptor, data, offset)
        self._calls += 1
        if self._calls % 2 == 0:
            raise OSError(28, "No space left on device")
        return self._written(descriptor, data[:2], offset)


def test_a_torn_chunk_is_cut_off_and_the_next_one_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    file = BoundedFile(path, 100)
    assert file.append(b"whole\n")
    disk = FullDisk(monkeypatch)
    assert not file.append(b"torn\n")
    assert path.read_bytes() == b"whole\n"
    disk.full = False
    assert file.append(b"again\n")
    file.close()
    assert path.read_bytes() == b"whole\nagain\n"


@pytest.mark.parametrize("what", ["a folder", "a pipe", "in no folder", "a device"])
def test_files_that_can_t_be_used(tmp_path: Path, what: str) -> None:
    path = {"in no folder": tmp_path / "no" / "f", "a device": Path("/dev/null")}.get(
        what, tmp_path / "f"
    )
    if what == "a folder":
        path.mkdir()
    elif what == "a pipe":
        os.mkfifo(path)
    with pytest.raises(ConfigError) as refused:
        BoundedFile.named(path, 10, "--trace")
    assert refused.value.problems[0].field == "--trace"
