"""A server of our own for `bench serve`: started, awaited, and ended as a user would end it."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Final

from runfiles import Runfiles

from errors import TPError

COORDINATOR: Final = "rankproof/coordinator/coordinator"
_READY: Final = "serving at "
_START_S: Final = 120.0
_END_S: Final = 30.0
_KEPT: Final = ("PATH", "TMPDIR", "HOME")


@dataclass(frozen=True)
class Program:
    """How to start the coordinator: the head of its command line, and its environment."""

    argv: Sequence[str]
    env: Mapping[str, str]


@dataclass(frozen=True)
class Started:
    """url: of the server. pid: of its process."""

    url: str
    pid: int


def built_program() -> Program:
    """The coordinator of this build. Raises TPError when it carries none."""
    runfiles = Runfiles.Create()
    path = runfiles.Rlocation(COORDINATOR) if runfiles is not None else None
    if runfiles is None or path is None or not os.access(path, os.X_OK):
        raise TPError("process.start", f"this build carries no coordinator ({COORDINATOR})")
    env = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return Program((path,), env | runfiles.EnvVars())


@contextmanager
def own_server(program: Program, arguments: Sequence[str]) -> Iterator[Started]:
    """A server that is ready. On leaving it has ended and was reaped.

    Raises TPError `process.start` with its last words when it does not start, `process.exit` when
    it does not end with 0 after SIGTERM.
    """
    process = subprocess.Popen(
        [*program.argv, "serve", "--port", "0", *arguments],
        env=dict(program.env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: Queue[str | None] = Queue()
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    try:
        yield Started(_url(lines), process.pid)
        process.send_signal(signal.SIGTERM)
        code = process.wait(_END_S)
        if code:
            raise TPError("process.exit", f"the server ended with {code}")
    finally:
        process.kill()
        process.wait(_END_S)
        reader.join(_END_S)


def _read(process: subprocess.Popen[str], lines: Queue[str | None]) -> None:
    """Whatever the server says is taken, so that it never waits for a reader."""
    if process.stderr is not None:
        with process.stderr:
            for line in process.stderr:
                lines.put(line)
    lines.put(None)


def _url(lines: Queue[str | None]) -> str:
    said: list[str] = []
    deadline = time.monotonic() + _START_S
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise TPError("process.start", f"not ready after {_START_S:g} s") from None
        if line is None:
            raise TPError("process.start", f"the server ended: {' '.join(said[-3:])}")
        said.append(line.strip())
        if line.startswith(_READY):
            # "serving at URL: ..." or "serving at URL and SOCKET: ...".
            return line.removeprefix(_READY).split()[0].rstrip(":")
