"""The same bytes, whoever writes them; and never where it would mean to wait."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from coordinator.serving.direct_write import direct_write
from coordinator.serving.http_server import HttpServer, listen
from coordinator.serving.live_server import LIMITS

NOTHING_AFTER_S = 20.0
PARTS = [b"x", b"a longer part", b"z" * 5000]
LARGE = b"y" * (8 << 20)


class Application:
    """Answers with PARTS. written: what direct writes said, one for each part."""

    def __init__(self, parts: list[bytes], *, directly: bool) -> None:
        self.written: list[bool] = []
        self.before: list[bool] = []
        self.after: list[bool] = []
        self._parts = parts
        self._directly = directly

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        write = direct_write(scope)
        self.before.append(write(b"too early"))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for part in self._parts:
            if self._directly:
                self.written.append(write(part))
            if not (self._directly and self.written[-1]):
                await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
        self.after.append(write(b"too late"))


async def exchange(app: Application, version: str, *, reads: bool = True) -> bytes:
    """What a client gets, all of it but the date."""
    listener = listen("127.0.0.1", 0)
    server = HttpServer(app, LIMITS, 100)
    serving = asyncio.create_task(server.serve_on(listener))
    reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=1 << 30)
    writer.write(f"GET / HTTP/{version}\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    while not reads and False not in app.written:
        await asyncio.sleep(0.001)
    data = await reader.read()
    writer.close()
    server.end()
    await serving
    return b"\r\n".join(line for line in data.split(b"\r\n") if not line.startswith(b"date:"))


def answer(app: Application, version: str = "1.1", *, reads: bool = True) -> bytes:
    async def bounded() -> bytes:
        async with asyncio.timeout(NOTHING_AFTER_S):
            return await exchange(app, version, reads=reads)

    return asyncio.run(bounded())


@pytest.mark.parametrize(("version", "can"), [("1.1", True), ("1.0", False)])
def test_the_same_bytes_as_by_messages(version: str, can: bool) -> None:
    direct, messages = (Application(PARTS, directly=directly) for directly in (True, False))
    assert answer(direct, version) == answer(messages, version)
    assert direct.written == [can] * len(PARTS)


def test_only_while_an_answer_runs() -> None:
    app = Application(PARTS, directly=True)
    answer(app)
    assert (app.before, app.after) == ([False], [False])


def test_not_to_a_client_that_does_not_read() -> None:
    app = Application([LARGE, LARGE, b"end"], directly=True)
    assert answer(app, reads=False).count(b"y") == 2 * len(LARGE)
    assert app.written[:2] == [True, False]


def test_without_such_a_server_nothing_is_written() -> None:
    assert not direct_write({"type": "http"})(b"x")
