"""The worker processes a run starts: start, notice an end, stop within a bound, prove none is left.

Only processes started here are ever signalled. How a process starts is a `Launcher`: a fresh
program (`ExecLauncher`), or a fork of a loaded parent (evidence and benchmarks).
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from coordinator.interruption import held
from coordinator.last_words import LastWords
from errors import TPError

KILL_MS = 5_000


class WorkerProcess(Protocol):
    """A worker that was started here."""

    rank: int
    pid: int

    def poll(self) -> int | None:
        """Exit status (negative: ended by that signal), or None while it runs. Reaps."""

    def wait(self, deadline: float) -> int | None:
        """Like poll, but waits until `deadline` (monotonic seconds) for the end."""

    def kill(self) -> None:
        """SIGKILL; nothing happens when the process has been reaped."""

    def last_words(self) -> str:
        """The end of what it wrote on standard error."""

    def close(self) -> None:
        """Let go of what was captured; after the process was reaped."""


class Launcher(Protocol):
    """Starts one worker that will connect to `address` as `rank`."""

    def start(self, rank: int, address: str) -> WorkerProcess: ...


class ExecProcess:
    """A worker started as a program of its own."""

    def __init__(self, rank: int, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.rank = rank
        try:
            self._words = LastWords()
            self._popen = self._start(argv, env)
        except OSError as failure:
            raise TPError("process.start", f"can't start {argv[0]}: {failure.strerror}") from None
        self.pid = self._popen.pid

    def _start(self, argv: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        try:
            return subprocess.Popen(
                list(argv),
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._words.fileno(),
            )
        except BaseException:
            self._words.close()
            raise

    def poll(self) -> int | None:
        return self._popen.poll()

    def wait(self, deadline: float) -> int | None:
        try:
            return self._popen.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        self._popen.kill()

    def last_words(self) -> str:
        return self._words.text()

    def close(self) -> None:
        self._words.close()


@dataclass(frozen=True)
class ExecLauncher:
    """Starts `argv --connect ADDRESS --rank R extra...` with exactly the environment `env`."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    extra: tuple[str, ...] = ()

    def start(self, rank: int, address: str) -> WorkerProcess:
        argv = [*self.argv, "--connect", address, "--rank", str(rank), *self.extra]
        return ExecProcess(rank, argv, self.env)


@dataclass(frozen=True)
class WorkerExit:
    """How one worker ended. killed: it had to be, because it did not leave in time."""

    rank: int
    pid: int
    status: int
    killed: bool
    last_words: str


class Workers:
    """The processes of one run. `stop` may be called at any time, also twice."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._running: list[WorkerProcess] = []
        self.exits: list[WorkerExit] = []
        self.pids: dict[int, int] = {}

    def start(self, world_size: int, address: str) -> None:
        for rank in range(world_size):
            # A process that is started but not noted would be left behind.
            with held():
                process = self._launcher.start(rank, address)
                self._running.append(process)
                self.pids[rank] = process.pid

    def ended(self) -> list[WorkerExit]:
        """Those whose process has ended although nobody asked it to, in rank order."""
        return [
            WorkerExit(process.rank, process.pid, status, False, process.last_words())
            for process in self._running
            if (status := process.poll()) is not None
        ]

    def kill(self) -> None:
        """SIGKILL to all that still run; `stop` reaps them. May be called by any thread."""
        for process in tuple(self._running):
            process.kill()

    def stop(self, grace_ms: int) -> list[WorkerExit]:
        """Give every process until the grace is over to leave by itself; kill and reap the rest.

        Returns all exits in rank order. Afterwards none of the processes exists. Raises TPError
        `process.unkillable` when the kernel does not end one; the others are gone then too.
        """
        deadline = time.monotonic() + grace_ms / 1000
        for process in self._running:
            process.wait(deadline)
        killed = [process for process in self._running if process.poll() is None]
        for process in killed:
            process.kill()
        deadline = time.monotonic() + KILL_MS / 1000
        for process in list(self._running):
            status = process.wait(deadline)
            if status is not None:
                words = process.last_words()
                was_killed = process in killed
                self.exits.append(WorkerExit(process.rank, process.pid, status, was_killed, words))
                self._running.remove(process)
                process.close()
        if self._running:
            names = ", ".join(f"{process.pid} of rank {process.rank}" for process in self._running)
            raise TPError("process.unkillable", f"these workers won't end: {names}")
        return self.exits
