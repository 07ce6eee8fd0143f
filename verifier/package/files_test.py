"""Files are regular, bounded, below their root, and the same bytes for every check."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from verifier.package.files import (
    FILE_BYTES_MAX,
    FILES_MAX,
    Directory,
    Memory,
    PackageFiles,
    UnreadableError,
    path_problem,
    read_regular,
)


def test_a_directory_and_a_mapping_are_the_same_package(tmp_path: Path) -> None:
    files = {"manifest.json": b"{}", "cases/a/tape.bin": b"tape"}
    for path, data in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(data)
    stores = [PackageFiles(Directory(tmp_path)), PackageFiles(Memory(files))]
    assert stores[0].listing == stores[1].listing
    for store in stores:
        assert store.read("cases/a/tape.bin") == b"tape"
        assert store.digest("cases/a/tape.bin") == hashlib.sha256(b"tape").hexdigest()
        with pytest.raises(UnreadableError):
            store.read("cases/b/tape.bin")


def test_what_is_no_regular_file_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"")
    os.truncate(tmp_path / "large", FILE_BYTES_MAX + 1)
    listing = Directory(tmp_path).listing()
    assert listing.sizes == {}
    assert len(listing.problems) == 3
    for name in ("link", "fifo", "large", "absent"):
        with pytest.raises(UnreadableError):
            read_regular(tmp_path / name)


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * FILE_BYTES_MAX)
    assert len(read_regular(tmp_path / "file")) == FILE_BYTES_MAX


def test_the_listing_ends(tmp_path: Path) -> None:
    for number in range(2 * FILES_MAX + 500):
        (tmp_path / str(number)).touch()
    listing = Directory(tmp_path).listing()
    assert len(listing.sizes) <= 2 * FILES_MAX + 1
    assert listing.problems


def test_a_file_that_changes_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    files = PackageFiles(Directory(tmp_path))
    files.read("file")
    path.write_bytes(b"after!")
    with pytest.raises(UnreadableError):
        files.read("file")


@pytest.mark.parametrize("path", ["manifest.json", "cases/clean-r1/tape.bin", "a" * 256, "a..b"])
def test_paths_below_the_root(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../x",
        "a/../b",
        "a//b",
        "a/",
        "./a",
        "a\\b",
        "a\0b",
        "a\nb",
        "\u00e9",
        "a" * 257,
    ],
)
def test_paths_that_leave_it(path: str) -> None:
    assert path_problem(path) is not None
