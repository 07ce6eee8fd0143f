"""One timer for all writes: each of them has its own deadline all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.types import Message

from coordinator.serving.write_deadline import WriteDeadline

NOTHING_AFTER_S = 20.0
# Long beside what a loaded machine adds.
BOUND_S = 0.3


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(NOTHING_AFTER_S):
            await scenario()

    asyncio.run(bounded())


async def quick(message: Message) -> None:
    await asyncio.sleep(0)


async def never(message: Message) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("pause_s", [0.0, BOUND_S / 3, 1.5 * BOUND_S])
def test_a_write_that_does_not_end(pause_s: float) -> None:
    """Wherever it begins between two looks, it has the whole bound, and no more."""

    async def scenario() -> None:
        began: list[float] = []

        async def writing() -> None:
            with WriteDeadline(BOUND_S) as deadline:
                await deadline.bounded(quick)({})
                await asyncio.sleep(pause_s)
                began.append(asyncio.get_running_loop().time())
                await deadline.bounded(never)({})

        with pytest.raises(TimeoutError):
            await writing()
        assert asyncio.get_running_loop().time() - began[0] > 0.9 * BOUND_S
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0

    run(scenario)


def test_many_quick_writes_take_as_long_as_they_like() -> None:
    async def scenario() -> None:
        with WriteDeadline(0.02) as deadline:
            write = deadline.bounded(quick)
            end = asyncio.get_running_loop().time() + 0.2
            while asyncio.get_running_loop().time() < end:
                await write({})
                await asyncio.sleep(0.001)

    run(scenario)


def test_waiting_between_writes_has_no_deadline() -> None:
    async def scenario() -> None:
        with WriteDeadline(0.01) as deadline:
            await deadline.bounded(quick)({})
            await asyncio.sleep(0.1)
            await deadline.bounded(quick)({})

    run(scenario)


def test_somebody_else_cancels() -> None:
    async def scenario() -> None:
        async def writing() -> None:
            with WriteDeadline(NOTHING_AFTER_S) as deadline:
                await deadline.bounded(never)({})

        task = asyncio.create_task(writing())
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario)


def test_other_errors_pass() -> None:
    async def broken(message: Message) -> None:
        raise ConnectionResetError

    async def scenario() -> None:
        with pytest.raises(ConnectionResetError), WriteDeadline(BOUND_S) as deadline:
            await deadline.bounded(broken)({})

    run(scenario)
