"""The files a run leaves: complete or not there.

Each file is written beside its name and renamed, the output last, so a full disk or a killed
process never leaves an output that looks complete. An output of an earlier run in the same folder
is removed before the first process starts, and a folder belongs to one run at a time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path

from errors import ConfigError, TPError
from wire.canonical import JsonValue, encode_canonical

MANIFEST = "manifest.json"
LEDGER = "ledger.jsonl"
TAPE = "tape.bin"
OBSERVATIONS = "observations.jsonl"
OUTPUT = "output.f32"
LOADS = "loads.jsonl"
_ALL = (OUTPUT, MANIFEST, LEDGER, TAPE, OBSERVATIONS, LOADS)
_PARTIAL_SUFFIX = ".partial"


class RunFiles:
    """The folder of one run. Raises ConfigError at once when it can't be written to.

    flag: the option that named it. The folder is this run's alone as long as the object lives: the
    files of two runs at once would be put together from both.
    """

    def __init__(self, directory: Path, flag: str = "--out") -> None:
        self.directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._claim(flag)
            for name in _ALL:
                (directory / name).unlink(missing_ok=True)
            probe = directory / (OUTPUT + _PARTIAL_SUFFIX)
            probe.write_bytes(b"")
            probe.unlink()
        except OSError as failure:
            raise ConfigError.single(
                flag, directory, f"must be a folder that can be written: {failure.strerror}"
            ) from None

    def _claim(self, flag: str) -> None:
        """The kernel lets go of the lock when this process is gone, however it ends."""
        descriptor = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        weakref.finalize(self, os.close, descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError.single(flag, self.directory, "another run is writing to it") from None
        except OSError:
            # A file system without locks; all else works there.
            return

    def write(self, name: str, data: bytes) -> None:
        """One file, whole. Raises TPError `output.write` and leaves nothing under the name."""
        path = self.directory / name
        partial = path.with_name(name + _PARTIAL_SUFFIX)
        try:
            with partial.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            partial.rename(path)
        except OSError as failure:
            raise TPError("output.write", f"can't write {path}: {failure.strerror}") from None
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)

    def write_observations(self, observations: list[dict[str, JsonValue]]) -> None:
        """What depends on the machine and the moment: times, process ids, addresses."""
        lines = [encode_canonical(observation) + b"\n" for observation in observations]
        self.write(OBSERVATIONS, b"".join(lines))

    def write_loads(self, reports: Sequence[Mapping[str, JsonValue]]) -> None:
        """What each rank said of its load, in rank order (docs/spec/program.md, Q5)."""
        lines = [encode_canonical(report) + b"\n" for report in reports]
        self.write(LOADS, b"".join(lines))
