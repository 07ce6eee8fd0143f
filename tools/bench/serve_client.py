"""A lean HTTP client for streamed answers: it must not be what a load generator measures.

Bytes of a stream are kept with the time they came and read after the run, so that nothing but
splitting happens between two events.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from errors import ConfigError, TPError

DONE: Final = "done"
# The client closed the connection on purpose.
LEFT: Final = "left"
# No [DONE]: the connection ended before, or nothing came in time, or nobody listened.
CUT: Final = "cut"
LATE: Final = "late"
UNREACHABLE: Final = "unreachable"

_EVENT_END: Final = b"\n\n"
_LAST_EVENT: Final = b"data: [DONE]"
_BODY_BYTES_MAX: Final = 64 << 20
_READ_BYTES: Final = 64 << 10
# A chunk's size, and whatever may follow it in its line.
_SIZE_LINE_MAX: Final = 256
# What was sent to a server that reads no more is given up after so long.
_CLOSE_S: Final = 1.0


@dataclass(frozen=True)
class Endpoint:
    """Where the server is. key: sent as a bearer token."""

    host: str
    port: int
    key: str | None = None

    @classmethod
    def of(cls, url: str, key: str | None = None) -> Endpoint:
        """Raises ConfigError for anything but http://HOST:PORT."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = None
        rest = parts.path.strip("/") or parts.query or parts.username
        if parts.scheme != "http" or not parts.hostname or port is None or rest:
            raise ConfigError.single("--url", url, "must be http://HOST:PORT")
        return cls(parts.hostname, port, key)

    def head(self, method: str, path: str, body: bytes) -> bytes:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {self.host}:{self.port}", "Connection: close"]
        if self.key is not None:
            lines.append(f"Authorization: Bearer {self.key}")
        if body:
            lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        return "\r\n".join([*lines, "\r\n"]).encode("ascii") + body


@dataclass
class Answer:
    """One request and what came of it. Times: seconds on the event loop's clock.

    kind: what the load calls it. due: when it should have been sent; in an open loop a server that
    is slow to accept can't make this later. events: raw events of the stream, with their times.
    end: DONE, LEFT, CUT, LATE, UNREACHABLE, `refused STATUS CODE` or `failed CODE`.
    """

    kind: str
    due: float
    sent: float = 0.0
    ended: float = 0.0
    events: list[tuple[float, bytes]] = field(default_factory=list)
    end: str = ""


async def stream(
    endpoint: Endpoint,
    path: str,
    body: Mapping[str, object],
    answer: Answer,
    *,
    timeout_s: float,
    leave_after: int | None = None,
    wake_bytes: int = 1,
) -> None:
    """Post and follow the stream; `answer.end` is set, whatever happens.

    leave_after: close the connection after so many events; 0 right after sending. wake_bytes: what
    must be there, or the end, before anything is read; so a client costs no processor meanwhile.
    """
    clock = asyncio.get_running_loop().time
    answer.sent = clock()
    answer.end = UNREACHABLE
    try:
        async with asyncio.timeout_at(answer.sent + timeout_s):
            with suppress(OSError, EOFError):
                answer.end = await _follow(endpoint, path, body, answer, leave_after, wake_bytes)
    except TimeoutError:
        answer.end = LATE
    answer.ended = clock()


async def get_json(endpoint: Endpoint, path: str, timeout_s: float) -> dict[str, object]:
    """The JSON object at `path`. Raises TPError `bench.http` for anything else."""
    try:
        async with asyncio.timeout(timeout_s), _Exchange(endpoint) as exchange:
            status = await exchange.ask("GET", path, b"")
            body = await exchange.whole_body()
    except (OSError, EOFError, TimeoutError) as failure:
        raise TPError("bench.http", f"GET {path}: {failure!r}") from None
    found = _object(body)
    if status != 200 or found is None:
        raise TPError("bench.http", f"GET {path} gave {status}: {body[:200]!r}")
    return found


async def _follow(
    endpoint: Endpoint,
    path: str,
    body: Mapping[str, object],
    answer: Answer,
    leave_after: int | None,
    wake_bytes: int,
) -> str:
    payload = json.dumps(body, separators=(",", ":")).encode("ascii")
    clock = asyncio.get_running_loop().time
    async with _Exchange(endpoint, wake_bytes) as exchange:
        answer.end = CUT
        exchange.send("POST", path, payload)
        if leave_after == 0:
            return LEFT
        status = await exchange.status()
        if status != 200:
            return f"refused {status} {_code(await exchange.whole_body())}"
        async for event in exchange.events():
            if event == _LAST_EVENT:
                return DONE
            answer.events.append((clock(), event))
            if event.startswith(b'data: {"error"'):
                return f"failed {_code(event.removeprefix(b'data: '))}"
            if leave_after is not None and len(answer.events) >= leave_after:
                return LEFT
        return CUT


class _Exchange:
    """One request on a connection of its own, closed on leaving."""

    def __init__(self, endpoint: Endpoint, wake_bytes: int = 1) -> None:
        self._endpoint = endpoint
        self._wake_bytes = wake_bytes
        self._length: int | None = None

    async def __aenter__(self) -> _Exchange:
        host, port = self._endpoint.host, self._endpoint.port
        self._reader, self._writer = await asyncio.open_connection(host, port)
        own: socket.socket = self._writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, self._wake_bytes)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await self._writer.wait_closed()
        self._writer.transport.abort()

    def send(self, method: str, path: str, body: bytes) -> None:
        self._writer.write(self._endpoint.head(method, path, body))

    async def ask(self, method: str, path: str, body: bytes) -> int:
        self.send(method, path, body)
        return await self.status()

    async def status(self) -> int:
        """Reads the head. Raises EOFError for one that is missing or is not HTTP."""
        try:
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        except asyncio.LimitOverrunError:
            raise EOFError("a head without an end") from None
        first, *lines = head.split("\r\n")
        headers = dict(line.split(":", 1) for line in lines if ":" in line)
        if "content-length" in headers:
            self._length = _number(headers["content-length"], 10)
        elif headers.get("transfer-encoding", "").strip() != "chunked":
            raise EOFError("an answer without a length")
        return _number(first.partition(" ")[2][:3], 10)

    async def whole_body(self) -> bytes:
        body = b""
        async for part in self._parts():
            body += part
            if len(body) > _BODY_BYTES_MAX:
                raise EOFError("an answer without an end")
        return body

    async def events(self) -> AsyncIterator[bytes]:
        """Events of the stream, without the empty line after each."""
        rest = b""
        async for part in self._parts():
            *whole, rest = (rest + part).split(_EVENT_END)
            for event in whole:
                yield event

    async def _parts(self) -> AsyncIterator[bytes]:
        if self._length is not None:
            yield await self._reader.readexactly(self._length)
            return
        rest = b""
        while True:
            # One read for all that is there: three per chunk cost more than the server's part.
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise EOFError("a stream without an end")
            rest += data
            while True:
                line, found, tail = rest.partition(b"\r\n")
                if not found and len(rest) <= _SIZE_LINE_MAX:
                    break
                size = _number(line.decode("latin-1"), 16)
                if not size:
                    return
                if len(tail) < size + 2:
                    break
                yield tail[:size]
                rest = tail[size + 2 :]


def _number(digits: str, base: int) -> int:
    """Raises EOFError for anything else, an empty line at the end of the stream among it."""
    try:
        number = int(digits, base)
    except ValueError:
        number = -1
    if not 0 <= number <= _BODY_BYTES_MAX:
        raise EOFError(f"{digits[:20]!r} is no number of HTTP")
    return number


def _object(body: bytes) -> dict[str, object] | None:
    try:
        found = json.loads(body)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _code(body: bytes) -> str:
    """The stable code of an error in the public shape."""
    found = _object(body)
    error = found.get("error") if found is not None else None
    return str(error.get("code")) if isinstance(error, dict) else "without a code"
