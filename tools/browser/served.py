"""A server of ours as a process: started, awaited by the line that tells its address, ended."""

from __future__ import annotations

import contextlib
import json
import queue
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

READY_S: Final = 120.0
END_S: Final = 30.0
ANSWER_S: Final = 60.0
SERVING: Final = re.compile(r"\bserving at (http://[0-9.]+:[0-9]+)")


class ServerError(Exception):
    """It did not start, or did not end."""


class Server:
    """url: without a slash at its end. log: what it said so far on standard error."""

    def __init__(self, process: subprocess.Popen[str], url: str, log: list[str]) -> None:
        self.process = process
        self.url = url
        self.log = log

    def get(self, path: str) -> Any:
        """The JSON of a GET that succeeds."""
        with urllib.request.urlopen(self.url + path, timeout=ANSWER_S) as answer:
            return json.load(answer)

    def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """The JSON of a POST that succeeds."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return json.load(answer)


@contextlib.contextmanager
def served(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Iterator[Server]:
    """Run the command until it serves; SIGTERM at the end. Raises ServerError.

    A server that ended by itself meanwhile, because a rank failed, is only reaped.
    """
    process = subprocess.Popen(
        list(command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=None if environment is None else dict(environment),
        cwd=folder,
    )
    log: list[str] = []
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(process, log, lines), daemon=True)
    reader.start()
    try:
        yield Server(process, _address(process, log, lines), log)
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(END_S)
            raise ServerError(f"it did not end within {END_S:g} s of SIGTERM") from None
        finally:
            reader.join(END_S)


def _read(process: subprocess.Popen[str], log: list[str], lines: queue.SimpleQueue[str]) -> None:
    for line in process.stderr or ():
        log.append(line)
        lines.put(line)
    lines.put("")


def _address(process: subprocess.Popen[str], log: list[str], lines: queue.SimpleQueue[str]) -> str:
    deadline = time.monotonic() + READY_S
    with contextlib.suppress(queue.Empty):
        while line := lines.get(timeout=max(0.0, deadline - time.monotonic())):
            if found := SERVING.search(line):
                return found.group(1)
    said = "".join(log[-10:])
    state = "ended" if process.poll() is not None else f"did not serve within {READY_S:g} s"
    raise ServerError(f"the server {state}; it said:\n{said}")
