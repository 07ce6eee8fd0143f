"""A server of the public protocol that does what a test asks, byte by byte; for tests only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tools.bench.serve_client import Endpoint
from tools.bench.serve_loads import Asking

# Few and short requests of every load.
ASKING = Asking(
    model="",
    vocabulary=0,
    prompt=3,
    tokens=4,
    long=9,
    clients=3,
    requests=12,
    rate=200.0,
    turns=3,
    seed=7,
    timeout_s=20.0,
)


@dataclass
class Fake:
    """requests: bodies as they came. live: connections in the middle of a stream.
    peak: most of them at a time. stuck: requests that are said to live for ever.

    refuse_every, fail_every, cut_every: every so many-th request ends that way; 0 for none.
    gap_s: between two tokens. piece_bytes: size of the stream's chunks; 0 for whole events.
    """

    refuse_every: int = 0
    fail_every: int = 0
    cut_every: int = 0
    gap_s: float = 0.0
    piece_bytes: int = 0
    requests: list[dict[str, object]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    live: int = 0
    peak: int = 0
    stuck: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Endpoint]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield Endpoint("127.0.0.1", server.sockets[0].getsockname()[1], "a-key")

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii")
            method, path, _ = head.split("\r\n")[0].split(" ")
            self.keys.append(head.partition("Authorization: ")[2].partition("\r\n")[0])
            if method == "GET":
                self._whole(writer, 200, self._get(path))
            else:
                length = int(head.lower().partition("content-length:")[2].partition("\r\n")[0])
                body = json.loads(await reader.readexactly(length))
                self.paths.append(path)
                self.requests.append(body)
                await self._post(writer, path, body, len(self.requests))
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    def _get(self, path: str) -> dict[str, object]:
        if path == "/v1/models":
            return {"data": [{"id": "fake"}]}
        return {
            "limits": {"vocab_size": 64},
            "requests": [{}] * (self.live + self.stuck),
            "steps": [],
        }

    async def _post(
        self, writer: asyncio.StreamWriter, path: str, body: dict[str, object], number: int
    ) -> None:
        if _is_turn(number, self.refuse_every):
            self._whole(writer, 429, {"error": {"code": "overload.queue", "message": "full"}})
            return
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self.live += 1
        self.peak = max(self.peak, self.live)
        try:
            tokens = int(str(body["max_tokens"]))
            for token in range(tokens):
                if _is_turn(number, self.cut_every) and token == 1:
                    return
                if _is_turn(number, self.fail_every) and token == 1:
                    self._event(writer, {"error": {"code": "poisoned", "message": "it died"}})
                    self._chunk(writer, b"")
                    return
                text = {"text": f"t{token}"}
                delta = {"delta": {"content": f"t{token}"}}
                self._event(writer, {"choices": [delta if "chat" in path else text]})
                await writer.drain()
                await asyncio.sleep(self.gap_s)
            self._event(writer, {"choices": [], "usage": {"completion_tokens": tokens}})
            self._chunk(writer, b"data: [DONE]\n\n")
            self._chunk(writer, b"")
        finally:
            self.live -= 1

    def _event(self, writer: asyncio.StreamWriter, value: dict[str, object]) -> None:
        self._chunk(writer, f"data: {json.dumps(value)}\n\n".encode("ascii"))

    def _chunk(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """One chunk, or the last, empty one; in pieces that do not respect events."""
        step = self.piece_bytes or max(1, len(data))
        for start in range(0, max(1, len(data)), step):
            piece = data[start : start + step]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def _whole(self, writer: asyncio.StreamWriter, status: int, value: dict[str, object]) -> None:
        body = json.dumps(value).encode("ascii")
        writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))


def _is_turn(number: int, every: int) -> bool:
    return bool(every) and number % every == 0
