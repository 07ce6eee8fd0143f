"""The same bytes, whoever writes them; and never where it would mean to wait."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from coordinator.serving.direct_write import DirectWrite, direct_write
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


async def exchange(app: Application, version: str, method: str, *, reads: bool) -> bytes:
    """What a client gets, all of it but the date."""
    listener = listen("127.0.0.1", 0)
    server = HttpServer(app, LIMITS, 100)
    serving = asyncio.create_task(server.serve_on(listener))
    reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=1 << 30)
    writer.write(f"{method} / HTTP/{version}\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
    while not reads and False not in app.written:
        await asyncio.sleep(0.001)
    data = await reader.read()
    writer.close()
    server.end()
    await serving
    return b"\r\n".join(line for line in data.split(b"\r\n") if not line.startswith(b"date:"))


def answer(
    app: Application, version: str = "1.1", *, method: str = "GET", reads: bool = True
) -> bytes:
    async def bounded() -> bytes:
        async with asyncio.timeout(NOTHING_AFTER_S):
            return await exchange(app, version, method, reads=reads)

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


def test_never_an_empty_chunk_nor_a_body_for_head() -> None:
    for method, parts in (("GET", [b"x", b"", b"y"]), ("HEAD", [b"x"])):
        direct, messages = (Application(parts, directly=directly) for directly in (True, False))
        assert answer(direct, method=method) == answer(messages, method=method)
        assert direct.written == [method == "GET" and bool(part) for part in parts]


def test_not_into_the_answer_of_another_request() -> None:
    """A writer that is kept belongs to the request it was given to."""
    kept: list[DirectWrite] = []
    late: list[bool] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        kept.append(direct_write(scope))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a", "more_body": True})
        late.append(kept[0](b"of the first"))
        await send({"type": "http.response.body", "body": b""})

    async def two_requests() -> bytes:
        listener = listen("127.0.0.1", 0)
        server = HttpServer(app, LIMITS, 100)
        serving = asyncio.create_task(server.serve_on(listener))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        async with asyncio.timeout(NOTHING_AFTER_S):
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            data = await reader.readuntil(b"0\r\n\r\n")
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            data += await reader.read()
            writer.close()
            server.end()
            await serving
        return data

    assert asyncio.run(two_requests()).count(b"of the first") == 1
    assert late == [True, False]


def test_not_to_a_client_that_does_not_read() -> None:
    app = Application([LARGE, LARGE, b"end"], directly=True)
    assert answer(app, reads=False).count(b"y") == 2 * len(LARGE)
    assert app.written[:2] == [True, False]


def test_without_such_a_server_nothing_is_written() -> None:
    assert not direct_write({"type": "http"})(b"x")
