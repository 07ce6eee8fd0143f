"""Workers forked from a parent that has everything loaded.

Isolation is a process each, with its own memory and its own socket; what a fork shares is only the
code that was loaded before. All other descriptors of the parent are closed in the child.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

from coordinator.last_words import LastWords
from coordinator.processes import WorkerProcess
from errors import TPError
from model.binding import open_program
from program.block import PROGRAM_NAME

# Above this no descriptor of a parent that forks workers is open.
_DESCRIPTORS_MAX = 1024
_POLL_S = 0.002
_CRASHED_STATUS = 70

Entry = Callable[[list[str]], int]


class ForkedProcess:
    """A worker that is a fork of this process."""

    def __init__(self, rank: int, entry: Entry, argv: list[str]) -> None:
        self.rank = rank
        self._status: int | None = None
        try:
            self._words = LastWords()
            self.pid = self._fork()
        except OSError as failure:
            raise TPError("process.start", f"can't fork a worker: {failure.strerror}") from None
        if self.pid == 0:
            _become_worker(entry, argv, self._words.fileno())

    def _fork(self) -> int:
        try:
            return os.fork()
        except OSError:
            self._words.close()
            raise

    def poll(self) -> int | None:
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status

    def wait(self, deadline: float) -> int | None:
        while self.poll() is None:
            if time.monotonic() >= deadline:
                return None
            time.sleep(_POLL_S)
        return self._status

    def kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)

    def last_words(self) -> str:
        return self._words.text()

    def close(self) -> None:
        self._words.close()


def _become_worker(entry: Entry, argv: list[str], stderr: int) -> NoReturn:
    status = _CRASHED_STATUS
    try:
        os.dup2(stderr, 2)
        os.closerange(3, _DESCRIPTORS_MAX)
        # The parent's stream may be buffered, or somewhere else than descriptor 2.
        raw = io.FileIO(2, "w", closefd=False)
        sys.stderr = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
        status = entry(argv)
    except BaseException:
        traceback.print_exc()
    finally:
        # Never back into the parent's stack: its open files and exit handlers are not ours.
        os._exit(status)


@cache
def _load_block() -> None:
    """A worker imports its program when it is opened; here that is done once, before the forks."""
    open_program(PROGRAM_NAME, {}, 0, 1)


@dataclass(frozen=True)
class ForkLauncher:
    """entry: a worker's main(argv). extra: arguments for every rank."""

    entry: Entry
    extra: tuple[str, ...] = ()

    def start(self, rank: int, address: str) -> WorkerProcess:
        _load_block()
        argv = ["--connect", address, "--rank", str(rank), *self.extra]
        return ForkedProcess(rank, self.entry, argv)
