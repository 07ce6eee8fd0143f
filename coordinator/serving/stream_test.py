"""A stream of events to readers that are quick, slow and gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import pytest

from coordinator.serving.api_options import ApiOptions
from coordinator.serving.stream import EventStream

Message = MutableMapping[str, Any]
NOTHING_AFTER_S = 20.0


def stream_of(options: ApiOptions, left: Callable[[], None]) -> EventStream:
    return EventStream(options, left, asyncio.get_running_loop().call_soon)


class Reader:
    """The server's `send`. stops_at: the message that it never takes."""

    def __init__(self, stops_at: int | None = None, fails_at: int | None = None) -> None:
        self.messages: list[Message] = []
        self.stuck = asyncio.Event()
        self._stops_at = stops_at
        self._fails_at = fails_at

    async def send(self, message: Message) -> None:
        if len(self.messages) == self._fails_at:
            raise ConnectionResetError
        if len(self.messages) == self._stops_at:
            self.stuck.set()
            await asyncio.Event().wait()
        self.messages.append(message)

    @property
    def data(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.messages)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(NOTHING_AFTER_S):
            await scenario()

    asyncio.run(bounded())


def test_everything_is_sent_in_order_and_the_end_once() -> None:
    async def scenario() -> None:
        left: list[bool] = []
        stream, reader = stream_of(ApiOptions(), lambda: left.append(True)), Reader()
        sending = asyncio.create_task(stream.run(reader.send, [(b"x", b"y")]))
        for number in range(100):
            stream.write(b"%d," % number)
            if number % 7 == 0:
                await asyncio.sleep(0)
        stream.end()
        await sending
        assert reader.data == b"".join(b"%d," % number for number in range(100))
        start, *bodies = reader.messages
        assert (start["status"], start["headers"][-1]) == (200, (b"x", b"y"))
        assert [body.get("more_body", False) for body in bodies] == [True] * (len(bodies) - 1) + [
            False
        ]
        assert not left

    run(scenario)


def test_what_is_written_together_is_sent_together() -> None:
    async def scenario() -> None:
        stream, reader = stream_of(ApiOptions(), lambda: None), Reader()
        for _ in range(10):
            stream.write(b"x")
        stream.end()
        await stream.run(reader.send, [])
        assert [message.get("body") for message in reader.messages[1:]] == [b"x" * 10, b""]

    run(scenario)


class Direct:
    """Writes of which every third is refused, beside the messages of a reader."""

    def __init__(self, reader: Reader) -> None:
        self.written = 0
        self._reader = reader
        self._asked = 0

    def write(self, data: bytes) -> bool:
        assert data
        self._asked += 1
        if self._asked % 3 == 0:
            return False
        self.written += 1
        self._reader.messages.append({"body": data, "more_body": True})
        return True


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_direct_writes_keep_the_order(turns: int) -> None:
    """Also where the task that has to wait comes late."""

    async def scenario() -> None:
        stream, reader = stream_of(ApiOptions(), lambda: None), Reader()
        direct = Direct(reader)
        stream.write(b"first,")
        sending = asyncio.create_task(stream.run(reader.send, [], direct.write))
        for number in range(100):
            stream.write(b"%d," % number)
            stream.write(b";")
            for _ in range(number % (turns + 1)):
                await asyncio.sleep(0)
        stream.end()
        await sending
        wanted = b"first," + b"".join(b"%d,;" % number for number in range(100))
        assert reader.data == wanted
        assert direct.written > 10
        assert reader.messages[-1].get("more_body", False) is False

    run(scenario)


def test_what_is_written_directly_needs_no_message() -> None:
    async def scenario() -> None:
        stream, reader, written = stream_of(ApiOptions(), lambda: None), Reader(), []

        def direct(data: bytes) -> bool:
            written.append(data)
            return True

        sending = asyncio.create_task(stream.run(reader.send, [], direct))
        await asyncio.sleep(0)
        for _ in range(3):
            stream.write(b"a")
            stream.write(b"b")
            await asyncio.sleep(0)
        stream.end()
        await sending
        assert written == [b"ab"] * 3
        assert [message.get("body") for message in reader.messages[1:]] == [b""]

    run(scenario)


def test_a_client_that_is_gone_is_not_written_to() -> None:
    async def scenario() -> None:
        stream, reader = stream_of(ApiOptions(), lambda: None), Reader()
        direct = Direct(reader)
        sending = asyncio.create_task(stream.run(reader.send, [], direct.write))
        await asyncio.sleep(0)
        stream.write(b"a")
        stream.close()
        await sending
        assert not direct.written

    run(scenario)


@pytest.mark.parametrize("stops_at", [0, 1, 2])
def test_a_write_that_takes_too_long(stops_at: int) -> None:
    async def scenario() -> None:
        left: list[bool] = []
        stream = stream_of(ApiOptions(send_ms=20), lambda: left.append(True))
        reader = Reader(stops_at=stops_at)
        sending = asyncio.create_task(stream.run(reader.send, []))
        stream.write(b"a")
        await asyncio.sleep(0.001)
        stream.write(b"b")
        await sending
        assert (left, stream.gone) == ([True], True)

    run(scenario)


def test_too_much_unread_is_noticed_at_once() -> None:
    """Also while a write is stuck that has minutes left."""

    async def scenario() -> None:
        left: list[bool] = []
        options = ApiOptions(send_ms=600_000, unread_bytes_max=100)
        stream, reader = stream_of(options, lambda: left.append(True)), Reader(stops_at=1)
        sending = asyncio.create_task(stream.run(reader.send, []))
        stream.write(b"x" * 60)
        await reader.stuck.wait()
        # What is being written counts: nobody has read it.
        stream.write(b"x" * 40)
        assert not stream.gone
        stream.write(b"x")
        assert (left, stream.gone) == ([True], True)
        stream.write(b"more")
        stream.end()
        sending.cancel()

    run(scenario)


def test_a_reader_that_keeps_up_is_never_gone() -> None:
    async def scenario() -> None:
        stream, reader = stream_of(ApiOptions(unread_bytes_max=10), lambda: None), Reader()
        sending = asyncio.create_task(stream.run(reader.send, []))
        for _ in range(50):
            stream.write(b"x" * 10)
            while b"".join(m.get("body", b"") for m in reader.messages) != reader.data:
                await asyncio.sleep(0)
            await asyncio.sleep(0.001)
        stream.end()
        await sending
        assert len(reader.data) == 500

    run(scenario)


def test_a_connection_that_breaks() -> None:
    async def scenario() -> None:
        left: list[bool] = []
        stream = stream_of(ApiOptions(), lambda: left.append(True))
        stream.write(b"x")
        await stream.run(Reader(fails_at=1).send, [])
        assert left == [True]

    run(scenario)


def test_closing_ends_it_once() -> None:
    async def scenario() -> None:
        left: list[bool] = []
        stream = stream_of(ApiOptions(), lambda: left.append(True))
        sending = asyncio.create_task(stream.run(Reader().send, []))
        await asyncio.sleep(0)
        stream.close()
        stream.close()
        await sending
        assert left == [True]

    run(scenario)
