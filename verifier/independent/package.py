"""Reading the package: no links, no special files, bounded sizes, each file's digest taken once."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from findings import shown

MAX_FILE_BYTES = 4 * 2**20
MAX_FILES = 2_000

TOP_FILES = ("manifest.json", "cases.jsonl", "summary.json", "report.md", "figure.svg")
_CASE_FILES = ("ledger.jsonl", "tape.bin")
_OUTPUT_FILE = "output.f32"


class Unreadable(Exception):
    """A file that can't be read within the limits; the message says why."""


@dataclass(frozen=True)
class Digest:
    """Size in bytes and SHA-256 of what was read."""

    size: int
    sha256: str


def case_path(case: str, name: str) -> str:
    return f"cases/{case}/{name}"


def expected_paths(clean: Iterable[str], fault: Iterable[str]) -> set[str]:
    """Every path of a package with these cases (evidence.md E2)."""
    paths = set(TOP_FILES)
    for case in clean:
        paths.update(case_path(case, name) for name in (*_CASE_FILES, _OUTPUT_FILE))
    for case in fault:
        paths.update(case_path(case, name) for name in _CASE_FILES)
    return paths


def path_fault(path: str) -> str | None:
    """Why a path named in the manifest is not a path inside the package, or None."""
    if not path or len(path) > 256:
        return "is empty or longer than 256 characters"
    if path.startswith("/") or "\\" in path or "\0" in path:
        return "is absolute, or has a backslash or a NUL"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "has an empty part, `.` or `..`"
    return None


class Package:
    """The regular files below a directory.

    Files are read when asked for and not kept, so memory is bounded by the largest file. The digest
    of the first reading is kept; a file that changes between two readings is `Unreadable`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sizes: dict[str, int] = {}
        self.directories: set[str] = set()
        self.problems: list[str] = []
        self._digests: dict[str, Digest] = {}

    def scan(self) -> None:
        """Lists the package in `sizes`; what is no regular file within limits, in `problems`."""
        seen = 0
        directories = [""]
        while directories:
            directory = directories.pop()
            try:
                with os.scandir(self.root / directory) as entries:
                    for entry in entries:
                        seen += 1
                        if seen > 2 * MAX_FILES or len(self.sizes) == MAX_FILES:
                            self.problems.append(f"more than {MAX_FILES} files, or as many folders")
                            return
                        path = f"{directory}/{entry.name}" if directory else entry.name
                        if self._list(path, entry):
                            directories.append(path)
            except OSError as error:
                self.problems.append(f"{shown(directory)}: {error.strerror}")

    def _list(self, path: str, entry: os.DirEntry[str]) -> bool:
        """Takes one entry; true for a directory to walk, which only `cases/<case>` is."""
        mode = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(mode.st_mode):
            parts = path.split("/")
            if parts[0] == "cases" and len(parts) <= 2:
                self.directories.add(path)
                return True
            self.problems.append(f"{shown(path)} is a directory that no package has")
        elif not stat.S_ISREG(mode.st_mode):
            self.problems.append(f"{shown(path)} is a link or a special file")
        elif mode.st_size > MAX_FILE_BYTES:
            self.problems.append(f"{shown(path)} has {mode.st_size} bytes, limit {MAX_FILE_BYTES}")
        else:
            self.sizes[path] = mode.st_size
        return False

    def read(self, path: str) -> bytes:
        """The bytes of a file.

        Raises:
            Unreadable: missing, no regular file, too large, or changed since it was first read.
        """
        if path not in self.sizes:
            raise Unreadable(f"{shown(path)} is missing or can't be used")
        data = read_regular(self.root / path)
        digest = Digest(len(data), hashlib.sha256(data).hexdigest())
        if self._digests.setdefault(path, digest) != digest:
            raise Unreadable(f"{shown(path)} changed while it was read")
        return data

    def digest(self, path: str) -> Digest:
        """Size and SHA-256 of a file, read once at most. Raises `Unreadable` as `read` does."""
        if path not in self._digests:
            self.read(path)
        return self._digests[path]


def read_regular(path: Path) -> bytes:
    """Reads a regular file within MAX_FILE_BYTES, following no link and waiting on no FIFO."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Unreadable(f"{shown(path.name)} is not a regular file")
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise Unreadable(f"{shown(path.name)} can't be read: {error}") from None
    if len(data) > MAX_FILE_BYTES:
        raise Unreadable(f"{shown(path.name)} is larger than {MAX_FILE_BYTES} bytes")
    return data
