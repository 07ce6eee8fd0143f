"""A real server in a process of its own, and clients of it that block; for gates over HTTP.

The embedded model over two real ranks, unless a test says otherwise. Afterwards neither a process
nor a file may be left.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, Final

import worker.main
from coordinator.gates import serve_process, slow_worker
from coordinator.gates.live import ENVIRONMENT
from coordinator.process_table import process_state, wait_until

ANSWER_S: Final = 60.0
# A busy machine takes its time to run the interpreter's own end.
SLOW_S: Final = 2.0
MODEL: Final = Path(__file__).resolve().parents[2] / "testdata" / "tiny-qwen35"
WORKER: Final = worker.main.__name__
# For what is done to a request while it runs: with it, a thousand tokens take twenty seconds.
SLOW_WORKER: Final = slow_worker.__name__
# 8 slots, and as many pages as all of them together could use.
MEMORY: Final = ("--rank-memory-bytes", str(160 << 20), "--max-step-tokens", "64")
DONE: Final = "[DONE]"
PROMPT: Final = (5, 6, 7)

_URL: Final = re.compile(r"listening at http://[^ ]*:(\d+);")


def body(max_tokens: int, **further: object) -> dict[str, object]:
    """Of a completion that has exactly so many tokens."""
    given = {"prompt": list(PROMPT), "max_tokens": max_tokens, "ignore_eos": True}
    return {"model": MODEL.name, **given, **further}


class Stream:
    """An answer that comes in events. status: of its head; left unread until somebody asks."""

    def __init__(self, connection: HTTPConnection, response: HTTPResponse) -> None:
        self.status = response.status
        self._connection = connection
        self._response = response

    def next(self) -> Any:
        """The next event: an object, or DONE; None at the end."""
        while line := self._response.readline():
            if line.startswith(b"data: "):
                text = line[len(b"data: ") :].decode("utf-8").strip()
                return text if text == DONE else json.loads(text)
        return None

    def rest(self) -> list[Any]:
        """All events to the end of the stream, which may be an early one."""
        events = []
        try:
            while (event := self.next()) is not None:
                events.append(event)
        except (ConnectionError, OSError):
            pass
        finally:
            self.leave()
        return events

    def leave(self) -> None:
        """Without a word."""
        self._response.close()
        self._connection.close()


class HttpServing:
    """A running server. log: what it has said so far on standard error."""

    def __init__(self, process: subprocess.Popen[str], headers: Mapping[str, str]) -> None:
        self.process = process
        self.log = ""
        self.port = 0
        self._headers = dict(headers)
        self._streams: list[Stream] = []
        self._connections: list[HTTPConnection] = []

    def await_log(self, text: str) -> None:
        stderr = self.process.stderr
        assert stderr is not None
        while text not in self.log:
            line = stderr.readline()
            if not line:
                raise RuntimeError(f"ended without {text!r}: {self.log}")
            self.log += line

    def await_port(self) -> None:
        self.await_log("listening at")
        found = _URL.search(self.log)
        assert found is not None
        self.port = int(found.group(1))

    def connect(self) -> HTTPConnection:
        """Closed at the latest when the server has ended."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)
        self._connections.append(connection)
        return connection

    def ask(self, method: str, path: str, sent: object = None) -> tuple[int, Any]:
        """Status, and the body as JSON or, where it is none, as text."""
        with closing(self.connect()) as connection:
            response = _sent(connection, method, path, sent, self._headers)
            with response:
                text = response.read().decode("utf-8")
            is_json = response.headers.get_content_type() == "application/json"
            return response.status, json.loads(text) if is_json else text

    def complete(self, max_tokens: int = 3, **further: object) -> tuple[int, Any]:
        return self.ask("POST", "/v1/completions", body(max_tokens, **further))

    def stream(self, max_tokens: int, **further: object) -> Stream:
        """Its head has come, and no event has been read."""
        connection = self.connect()
        sent = body(max_tokens, stream=True, **further)
        try:
            response = _sent(connection, "POST", "/v1/completions", sent, self._headers)
        except BaseException:
            connection.close()
            raise
        stream = Stream(connection, response)
        self._streams.append(stream)
        return stream

    def leave_all(self) -> None:
        """What a test did not read to its end."""
        for stream in self._streams:
            stream.leave()
        for connection in self._connections:
            connection.close()

    def ready(self) -> Any:
        """The page of /readyz."""
        status, page = self.ask("GET", "/readyz")
        assert (status == 200) is page["ok"]
        return page

    def pids(self) -> list[int]:
        return [rank["pid"] for rank in self.ready()["ranks"]]

    def text(self) -> str:
        """A fixed request's answer: the same whatever came before it."""
        status, answer = self.complete(8, seed=1, temperature=0)
        assert status == 200, answer
        return str(answer["choices"][0]["text"])

    def is_idle(self) -> bool:
        """Nobody holds a slot or a page, and no request lives."""
        _, engine = self.ask("GET", "/v1/engine")
        held = [slot for slot in engine["slots"] if slot is not None]
        free = engine["pages_free"] == engine["limits"]["pages"]
        return not held and free and not engine["requests"]

    def wait(self) -> int:
        """Its exit code, once it has ended by itself."""
        _, rest = self.process.communicate(timeout=ANSWER_S)
        self.log += rest
        return self.process.returncode

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, float]:
        """Exit code and seconds from the signal to the end."""
        began = time.monotonic()
        self.process.send_signal(number)
        return self.wait(), time.monotonic() - began


def _sent(
    connection: HTTPConnection, method: str, path: str, sent: object, headers: Mapping[str, str]
) -> HTTPResponse:
    data = None if sent is None else json.dumps(sent).encode("utf-8")
    kind = {} if data is None else {"Content-Type": "application/json"}
    connection.request(method, path, data, {**kind, **headers})
    return connection.getresponse()


class _Program:
    """What is started: the coordinator as it is, or with a planted mistake."""

    head: tuple[str, ...] = (serve_process.__name__,)


@contextmanager
def planted(mistake: Callable[[], None]) -> Iterator[None]:
    """Servers that start meanwhile have this mistake of http_mutants.py; the block must fail.

    Raises AssertionError when it does not.
    """
    usual = _Program.head
    _Program.head = (mistake.__module__, mistake.__name__)
    try:
        yield
    except AssertionError:
        return
    finally:
        _Program.head = usual
    raise AssertionError(f"the gate does not notice {mistake.__name__}")


def command(*arguments: str, module: str = WORKER) -> list[str]:
    return [sys.executable, "-m", *_Program.head, module, "--", *arguments]


def environment(home: Path) -> dict[str, str]:
    return {**ENVIRONMENT, "TMPDIR": str(home), "PATH": os.environ.get("PATH", "")}


def refused(home: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """A `serve` that does not come to start anything: there is no such worker."""
    arguments = ("serve", "--checkpoint", str(MODEL), *MEMORY, *options)
    return subprocess.run(
        command(*arguments, module="no.such.worker"),
        env=environment(home),
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )


@contextmanager
def starting(
    options: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    ranks: int = 2,
    worker_module: str = WORKER,
) -> Iterator[HttpServing]:
    """A server that listens. Afterwards it must have ended, and nothing of it may be left."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        arguments = ("serve", "--port", "0", "--checkpoint", str(MODEL), "--tp", str(ranks))
        process = subprocess.Popen(
            command(*arguments, *MEMORY, *options, module=worker_module),
            env=environment(home),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        service = HttpServing(process, headers or {})
        try:
            service.await_port()
            yield service
            assert process.poll() is not None
            left = list(home.iterdir())
            assert left == []
        finally:
            process.kill()
            process.communicate()
            service.leave_all()


@contextmanager
def http_serving(
    options: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
    ranks: int = 2,
    worker_module: str = WORKER,
) -> Iterator[HttpServing]:
    """A server that is ready. All that `starting` demands, and that its first ranks are gone."""
    with starting(options, headers, ranks, worker_module) as service:
        service.await_log("serving at")
        pids = service.pids()
        yield service
        assert wait_until(lambda: all(process_state(pid) is None for pid in pids))
