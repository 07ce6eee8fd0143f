"""As many requests as may be, whatever becomes of them; and health, always."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from coordinator.serving.request_limit import RequestLimit

HEALTH = "/health"


async def _unused() -> Message:
    return {"type": "http.disconnect"}


class Service:
    """Two requests at once; they wait for `going`. answered: statuses, 0 for the app's."""

    def __init__(self) -> None:
        self.going = asyncio.Event()
        self.answered: list[int] = []
        self.limit = RequestLimit(self.app, 2, {HEALTH})

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.going.wait()
        if scope["path"] == "/mistake":
            raise ZeroDivisionError("planted")
        self.answered.append(0)

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.answered.append(message["status"])

    def ask(self, path: str) -> asyncio.Task[None]:
        scope = {"type": "http", "path": path}
        return asyncio.get_running_loop().create_task(self.limit(scope, _unused, self._send))


async def _at_once(paths: list[str]) -> Service:
    service = Service()
    tasks = [service.ask(path) for path in paths]
    await asyncio.sleep(0)
    assert service.limit.requests == min(2, sum(path != HEALTH for path in paths))
    service.going.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert service.limit.requests == 0
    return service


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["/a", "/b"], [0, 0]),
        (["/a", "/b", "/c"], [503, 0, 0]),
        (["/a", "/b", HEALTH, HEALTH, HEALTH], [0] * 5),
        (["/mistake", "/mistake", "/a"], [503]),
    ],
)
def test_at_once(paths: list[str], expected: list[int]) -> None:
    service = asyncio.run(_at_once(paths))
    assert service.answered == expected


def test_one_after_the_other() -> None:
    async def run() -> list[int]:
        service = Service()
        service.going.set()
        for _ in range(5):
            await service.ask("/a")
        return service.answered

    assert asyncio.run(run()) == [0] * 5
