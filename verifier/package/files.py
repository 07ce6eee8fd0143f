"""Reading a package's files: regular files only, no links followed, every size bounded (E2, E3).

A package is a directory, or (in tests) a mapping from path to bytes; the checks see no difference.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from verifier.package.findings import shown

FILE_BYTES_MAX: Final = 4 << 20
FILES_MAX: Final = 2_000
# cases/<case>/<file> is the deepest path.
FOLDERS_DEEP_MAX: Final = 2
PATH_CHARACTERS_MAX: Final = 256


class UnreadableError(Exception):
    """A file that is not there, or that can't be read within the limits; the message says why."""


@dataclass(frozen=True)
class Listing:
    """What stands below the root. sizes: of the regular files. problems: of everything else."""

    sizes: dict[str, int] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


class Store(Protocol):
    """Where a package is kept."""

    def listing(self) -> Listing: ...

    def read(self, path: str) -> bytes:
        """Raises UnreadableError. path: one that `listing` gave."""


class Directory:
    """A package on disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def listing(self) -> Listing:
        found = Listing()
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                with os.scandir(self._root / folder) as entries:
                    for entry in entries:
                        path = f"{folder}/{entry.name}" if folder else entry.name
                        if _take(found, path, entry.stat(follow_symlinks=False)):
                            waiting.append(path)
                        if len(found.sizes) + len(found.folders) > 2 * FILES_MAX:
                            found.problems.append(f"more than {FILES_MAX} files")
                            return found
                        if len(found.problems) > FILES_MAX:
                            return found
            except OSError as failure:
                found.problems.append(f"{shown(folder)}: {failure.strerror}")
        return found

    def read(self, path: str) -> bytes:
        return read_regular(self._root / path)


def _take(found: Listing, path: str, status: os.stat_result) -> bool:
    """Note one entry of a folder; whether it is a folder to look into."""
    if stat.S_ISDIR(status.st_mode):
        found.folders.add(path)
        return path.count("/") < FOLDERS_DEEP_MAX
    if not stat.S_ISREG(status.st_mode):
        found.problems.append(f"{shown(path)} is neither a regular file nor a folder")
    elif status.st_size > FILE_BYTES_MAX:
        found.problems.append(f"{shown(path)} has {status.st_size} bytes, limit {FILE_BYTES_MAX}")
    else:
        found.sizes[path] = status.st_size
    return False


def read_regular(path: Path) -> bytes:
    """A regular file within the size limit; follows no link at its end and waits for nobody."""
    try:
        # A FIFO would make open() wait for a writer; a device could do anything.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableError(f"{shown(path.name)} is not a regular file")
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as failure:
        raise UnreadableError(f"{shown(path.name)} can't be read: {failure}") from None
    if len(data) > FILE_BYTES_MAX:
        raise UnreadableError(f"{shown(path.name)} has more than {FILE_BYTES_MAX} bytes")
    return data


class Memory:
    """A package that is a mapping from path to bytes."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self._files = files

    def listing(self) -> Listing:
        sizes = {path: len(data) for path, data in self._files.items()}
        folders = {path.rpartition("/")[0] for path in sizes if path.count("/") == FOLDERS_DEEP_MAX}
        return Listing(sizes, folders | ({"cases"} if folders else set()))

    def read(self, path: str) -> bytes:
        return self._files[path]


class PackageFiles:
    """The files of one package, each read when it is asked for and not kept.

    The digest of what was read is kept, so that all checks speak of the same bytes: a file that
    changes meanwhile is unreadable.
    """

    def __init__(self, store: Store) -> None:
        self.listing = store.listing()
        self._store = store
        self._digests: dict[str, str] = {}

    def has(self, path: str) -> bool:
        return path in self.listing.sizes

    def read(self, path: str) -> bytes:
        """Raises UnreadableError."""
        if path not in self.listing.sizes:
            raise UnreadableError(f"{shown(path)} is missing, or no file that can be used")
        data = self._store.read(path)
        digest = hashlib.sha256(data).hexdigest()
        size = self.listing.sizes[path]
        if self._digests.setdefault(path, digest) != digest or len(data) != size:
            raise UnreadableError(f"{shown(path)} changed while it was read")
        return data

    def digest(self, path: str) -> str:
        """SHA-256 of a file. Raises UnreadableError."""
        if path not in self._digests:
            self.read(path)
        return self._digests[path]


def path_problem(path: str) -> str | None:
    """Why a path named by a package does not lie below its root, or None."""
    if not path or len(path) > PATH_CHARACTERS_MAX:
        return f"is empty or longer than {PATH_CHARACTERS_MAX} characters"
    if not (path.isascii() and path.isprintable()) or "\\" in path:
        return "has characters that no path here has"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "leaves its root, or has an empty part"
    return None
