"""Clients and observers for tests of the API over a real socket."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final

import httpx2
import openai

from coordinator.process_table import wait_until
from coordinator.serving.api_options import ApiOptions
from coordinator.serving.api_server import TINY, ApiServer
from coordinator.serving.fake_served import LIMITS, FakeServed, Script, counts
from coordinator.serving.text import ModelText
from errors import MisuseError

TEXT: Final = ModelText.load(TINY)
MODEL: Final = "fake-model"
PATHS: Final = ("/v1/completions", "/v1/chat/completions")
# Far more than any test waits.
PATIENCE_S: Final = 30.0
# A request of which no test waits for the end.
ENDLESS_TOKENS: Final = 60_000
LONG_LIMITS: Final = replace(LIMITS, context_tokens=65_536, pages=16_384)


class Observed:
    """What an observer was told."""

    def __init__(self) -> None:
        self.ends: list[tuple[str, str | None]] = []
        self.queues: list[float] = []
        self.firsts: list[float] = []
        self.gaps: list[float] = []

    def queued(self, seconds: float) -> None:
        self.queues.append(seconds)

    def first_token(self, seconds: float) -> None:
        self.firsts.append(seconds)

    def inter_token(self, seconds: float) -> None:
        self.gaps.append(seconds)

    def finished(self, outcome: str, code: str | None) -> None:
        self.ends.append((outcome, code))


def until(holds: Callable[[], bool]) -> None:
    """Waits for what must come."""
    if not wait_until(holds, PATIENCE_S):
        raise MisuseError("it did not come")


@contextmanager
def service(
    options: ApiOptions | None = None,
    observer: Observed | None = None,
    *,
    waiting_max: int = 8,
    script: Script = counts,
    send_buffer_bytes: int | None = None,
) -> Iterator[tuple[FakeServed, ApiServer, openai.OpenAI]]:
    """A served model, its server, and a client that never tries again."""
    with (
        FakeServed(script, limits=LONG_LIMITS, step_s=0.003, waiting_max=waiting_max) as served,
        ApiServer(
            served, options, text=TEXT, observer=observer, send_buffer_bytes=send_buffer_bytes
        ) as server,
        openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client,
    ):
        yield served, server, client


def body(path: str, **extra: object) -> dict[str, object]:
    """The shortest body of the endpoint, and what else is wanted."""
    if "chat" in path:
        return {"messages": [{"role": "user", "content": "x"}], **extra}
    return {"prompt": "x", **extra}


def endless(path: str = PATHS[0], **extra: object) -> dict[str, object]:
    """It goes on until somebody ends it."""
    return body(path, max_tokens=ENDLESS_TOKENS, ignore_eos=True, **extra)


def endless_streams(
    client: openai.OpenAI, count: int
) -> list[openai.Stream[openai.types.Completion]]:
    """Streams that have said something."""
    streams = [
        client.completions.create(
            model=MODEL,
            prompt="x",
            max_tokens=ENDLESS_TOKENS,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        for _ in range(count)
    ]
    for stream in streams:
        next(iter(stream))
    return streams


class Asking:
    """A request whose answer is waited for by another thread."""

    def __init__(self, server: ApiServer, path: str, told: dict[str, object]) -> None:
        self._answers: list[httpx2.Response] = []
        self._thread = threading.Thread(target=self._ask, args=(server.url + path, told))
        self._thread.start()

    def answer(self) -> httpx2.Response:
        """The answer; there is one."""
        self._thread.join(PATIENCE_S)
        (answer,) = self._answers
        return answer

    def _ask(self, url: str, told: dict[str, object]) -> None:
        self._answers.append(httpx2.post(url, json=told, timeout=PATIENCE_S))


def error_of(answer: httpx2.Response) -> dict[str, object]:
    """The error in an answer. Raises ValueError where it is no strict JSON."""
    error = json.loads(answer.content, parse_constant=_no_number)["error"]
    if not isinstance(error, dict):
        raise MisuseError("no error object")
    return error


@contextmanager
def sent(
    server: ApiServer, path: str, told: dict[str, object], receive_buffer_bytes: int = 65536
) -> Iterator[socket.socket]:
    """A connection on which the request was sent, and from which nothing was read."""
    data = json.dumps(told).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    with closing(socket.socket()) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(head.encode() + data)
        yield connection


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
