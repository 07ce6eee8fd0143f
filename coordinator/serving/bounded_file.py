"""A file that grows by whole chunks up to a bound, and is cut back when a chunk does not fit."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from errors import ConfigError


class BoundedFile:
    """Of at most bytes_max bytes. Mode 0600: what it holds follows from what clients sent.

    exclusive: it must not exist; else it is emptied. Raises OSError when it can't be opened, or is
    no regular file.
    """

    def __init__(self, path: Path, bytes_max: int, *, exclusive: bool = False) -> None:
        self.path = path
        self.bytes_max = bytes_max
        self.size = 0
        self._descriptor = _opened(path, os.O_EXCL if exclusive else os.O_TRUNC)

    @classmethod
    def named(cls, path: Path, bytes_max: int, flag: str) -> BoundedFile:
        """The file that an option names. Raises ConfigError instead."""
        try:
            return cls(path, bytes_max)
        except OSError as failure:
            rule = f"must be a regular file that can be written: {failure.strerror}"
            raise ConfigError.single(flag, path, rule) from None

    def fits(self, size: int) -> bool:
        """Whether so many bytes more stay within the bound."""
        return self.size + size <= self.bytes_max

    def append(self, data: bytes) -> bool:
        """All of it or nothing; False when it can't be written or does not fit."""
        if self._descriptor < 0 or not self.fits(len(data)):
            return False
        try:
            written = 0
            while written < len(data):
                written += os.pwrite(self._descriptor, data[written:], self.size + written)
        except OSError:
            self._cut()
            return False
        self.size += len(data)
        return True

    def rotate(self) -> bool:
        """What was written gets the suffix `.1`, in place of an older one; the file begins anew.

        False when that can't be done, and the file goes on. The new one is made beside it first, as
        `.new`: once the old one has lost its name, nothing can be missing any more.
        """
        beside, old = Path(f"{self.path}.new"), Path(f"{self.path}.1")
        try:
            # Never what somebody else has put there.
            beside.unlink(missing_ok=True)
            fresh = _opened(beside, os.O_EXCL)
        except OSError:
            return False
        try:
            self.path.replace(old)
            self._take_name(beside, old)
        except OSError:
            os.close(fresh)
            with contextlib.suppress(OSError):
                beside.unlink()
            return False
        self.close()
        self._descriptor, self.size = fresh, 0
        return True

    def close(self) -> None:
        """May be called again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take_name(self, beside: Path, old: Path) -> None:
        try:
            beside.replace(self.path)
        except OSError:
            old.replace(self.path)
            raise

    def _cut(self) -> None:
        """Of what could not be written whole, nothing stays."""
        try:
            os.ftruncate(self._descriptor, self.size)
        except OSError:
            # Nothing more may follow a torn end.
            self.close()


def _opened(path: Path, flag: int) -> int:
    # O_NONBLOCK: a pipe without a reader is refused, not waited for.
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | flag
    descriptor = os.open(path, flags, 0o600)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(path))
    return descriptor
