"""Updates from another thread: in order, with few wakes, and never lost by another's mistake."""

from __future__ import annotations

import asyncio
import threading

from coordinator.request import Token, Update
from coordinator.serving.bridge import Bridge, BridgedOutbox


def token(request_id: int, index: int) -> Token:
    return Token(request_id, index, index, 1, None, ())


class Kept:
    """Keeps what arrives; raises at one index."""

    def __init__(self, fails_at: int | None = None) -> None:
        self.updates: list[Update] = []
        self.mistakes: list[Exception] = []
        self.threads: set[int] = set()
        self._fails_at = fails_at

    def receive(self, update: Update, at: float) -> None:
        self.threads.add(threading.get_ident())
        if isinstance(update, Token) and update.index == self._fails_at:
            raise ZeroDivisionError
        self.updates.append(update)

    def crashed(self, mistake: Exception) -> None:
        self.mistakes.append(mistake)


def test_every_update_arrives_once_in_order_on_the_loop() -> None:
    async def scenario() -> None:
        bridge = Bridge(asyncio.get_running_loop(), lambda: 1.0)
        receivers = [Kept() for _ in range(4)]
        outboxes = [BridgedOutbox(bridge, receiver) for receiver in receivers]

        def engine() -> None:
            for index in range(500):
                for request_id, outbox in enumerate(outboxes):
                    outbox.put(token(request_id, index))
                    outbox.flush()

        await asyncio.to_thread(engine)
        await asyncio.sleep(0)
        for request_id, receiver in enumerate(receivers):
            assert receiver.updates == [token(request_id, index) for index in range(500)]
            assert receiver.threads == {threading.get_ident()}

    asyncio.run(scenario())


def test_updates_that_come_together_need_one_wake() -> None:
    async def scenario() -> None:
        bridge = Bridge(asyncio.get_running_loop(), lambda: 1.0)
        receiver = Kept()
        outbox = BridgedOutbox(bridge, receiver)
        for step in range(10):
            # The loop is busy here, so it can't look in between.
            for index in range(8):
                outbox.put(token(0, 8 * step + index))
            for _ in range(8):
                outbox.flush()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert bridge.wakes == step + 1
        assert len(receiver.updates) == 80

    asyncio.run(scenario())


def test_nothing_wakes_the_loop_before_the_flush() -> None:
    async def scenario() -> None:
        bridge = Bridge(asyncio.get_running_loop(), lambda: 1.0)
        receiver = Kept()
        outbox = BridgedOutbox(bridge, receiver)
        outbox.flush()
        outbox.put(token(0, 0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (bridge.wakes, receiver.updates) == (0, [])
        outbox.flush()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (bridge.wakes, receiver.updates) == (1, [token(0, 0)])

    asyncio.run(scenario())


def test_a_mistake_reaches_its_own_request_alone() -> None:
    async def scenario() -> None:
        bridge = Bridge(asyncio.get_running_loop(), lambda: 1.0)
        broken, well = Kept(fails_at=1), Kept()
        for index in range(3):
            for receiver in (broken, well):
                outbox = BridgedOutbox(bridge, receiver)
                outbox.put(token(0, index))
                outbox.flush()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert [type(mistake) for mistake in broken.mistakes] == [ZeroDivisionError]
        assert well.updates == [token(0, index) for index in range(3)]
        assert broken.updates == [token(0, 0), token(0, 2)]

    asyncio.run(scenario())


def test_what_is_soon_comes_after_all_updates_of_the_wake() -> None:
    async def scenario() -> None:
        loop, mistakes = asyncio.get_running_loop(), []
        loop.set_exception_handler(lambda _, told: mistakes.append(told["exception"]))
        bridge, heard = Bridge(loop, lambda: 1.0), []

        class Asking(Kept):
            def receive(self, update: Update, at: float) -> None:
                heard.append("update")
                bridge.soon(lambda: heard.append("soon"))
                bridge.soon(lambda: heard.append(str(1 // 0)))

        for _ in range(2):
            outbox = BridgedOutbox(bridge, Asking())
            outbox.put(token(0, 0))
            outbox.flush()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert heard == ["update", "update", "soon", "soon"]
        assert [type(mistake) for mistake in mistakes] == [ZeroDivisionError] * 2
        # Where nothing is delivered, the loop's next turn is soon enough.
        bridge.soon(lambda: heard.append("later"))
        assert heard[-1] == "soon"
        await asyncio.sleep(0)
        assert heard[-1] == "later"

    asyncio.run(scenario())


def test_the_engine_outlives_the_loop() -> None:
    loop = asyncio.new_event_loop()
    bridge = Bridge(loop, lambda: 1.0)
    loop.close()
    outbox = BridgedOutbox(bridge, Kept())
    outbox.put(token(0, 0))
    outbox.flush()
