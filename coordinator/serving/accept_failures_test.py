"""Accepting that fails for want of room is told, and does not flood the log."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from typing import Any

import pytest

from coordinator.serving.accept_failures import AcceptFailures


class Loop(asyncio.SelectorEventLoop):
    """Notes what would be written with its stack."""

    def __init__(self) -> None:
        super().__init__()
        self.others: list[dict[str, Any]] = []

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.others.append(context)


def lacking(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def test_told_at_once_and_then_once_a_minute() -> None:
    told: list[str] = []
    now = [0.0]
    failures = AcceptFailures(told.append, lambda: now[0])
    loop = Loop()
    context = {"exception": lacking(errno.EMFILE), "socket": None}
    counts = []
    for second in range(121):
        now[0] = float(second)
        failures.handle(loop, context)
        counts.append(len(told))
    loop.close()
    assert (failures.count, loop.others) == (121, [])
    assert [counts[0], counts[59], counts[60], counts[119], counts[120]] == [1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    "context",
    [
        {"message": "no exception"},
        {"exception": ValueError("ours"), "socket": None},
        {"exception": lacking(errno.ECONNRESET), "socket": None},
        {"exception": lacking(errno.EMFILE)},
    ],
)
def test_anything_else_is_told_as_ever(context: dict[str, Any]) -> None:
    told: list[str] = []
    failures = AcceptFailures(told.append, lambda: 0.0)
    loop = Loop()
    failures.handle(loop, context)
    loop.close()
    assert (loop.others, told, failures.count) == ([context], [], 0)


def test_what_asyncio_says_of_a_listener_without_descriptors() -> None:
    told: list[str] = []
    failures = AcceptFailures(told.append, lambda: 0.0)

    class Full(socket.socket):
        def accept(self) -> tuple[socket.socket, Any]:
            raise lacking(errno.EMFILE)

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(failures.handle)
        with Full() as listener:
            listener.bind(("127.0.0.1", 0))
            server = await asyncio.start_server(lambda reader, writer: None, sock=listener)
            with socket.create_connection(listener.getsockname()):
                while not told:
                    await asyncio.sleep(0.01)
            server.close()
            await server.wait_closed()

    asyncio.run(asyncio.wait_for(main(), 30))
    assert failures.count >= 1
