"""From the engine's thread to the event loop: every update, in order, with one wake for many.

The engine never waits here: an update is put in a list, and the loop is woken after the last one of
a step, unless it is about to look anyway. So a step costs one wake at most while the loop keeps up,
and fewer when it does not. A wake any earlier would make the engine wait for the interpreter's lock
between two updates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Lock
from typing import Protocol

from coordinator.request import Update


class Receiver(Protocol):
    """Where one request's updates arrive, on the event loop."""

    def receive(self, update: Update, at: float) -> None:
        """at: when the engine published it, on the service's clock."""

    def crashed(self, mistake: Exception) -> None:
        """`receive` raised this; further updates still come."""


class Bridge:
    """loop: where receivers are called. clock: that of `Served`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Callable[[], float]) -> None:
        self.loop = loop
        self._clock = clock
        self._lock = Lock()
        self._updates: list[tuple[Receiver, Update, float]] = []
        self._woken = False
        # What is due after the updates that are being delivered; None between two wakes.
        self._after: list[Callable[[], None]] | None = None
        self.wakes = 0

    def post(self, receiver: Receiver, update: Update) -> None:
        """Called by the engine's thread; neither waits nor raises."""
        with self._lock:
            self._updates.append((receiver, update, self._clock()))

    def flush(self) -> None:
        """What was posted is delivered soon. Called by the engine's thread, as `post`."""
        with self._lock:
            if self._woken or not self._updates:
                return
            self._woken = True
        try:
            self.loop.call_soon_threadsafe(self._deliver)
        except RuntimeError:
            # The loop is closed: nobody is left who could be told.
            return

    def soon(self, call: Callable[[], None]) -> None:
        """On the loop: once all updates of this wake were received, or else in its next turn.

        Calls of one wake are made at once: a turn and a handle for each cost more than they do.
        """
        if self._after is None:
            self.loop.call_soon(call)
        else:
            self._after.append(call)

    def _deliver(self) -> None:
        with self._lock:
            updates, self._updates = self._updates, []
            self._woken = False
        self.wakes += 1
        after: list[Callable[[], None]] = []
        self._after = after
        for receiver, update, at in updates:
            try:
                receiver.receive(update, at)
            except Exception as mistake:
                # It ends one request, which reports it, and not the others of this wake.
                receiver.crashed(mistake)
        self._after = None
        for call in after:
            try:
                call()
            except Exception as mistake:
                # As the loop does.
                told = {"message": f"in {call}", "exception": mistake}
                self.loop.call_exception_handler(told)


class BridgedOutbox:
    """An `Outbox` whose updates arrive at `receiver`."""

    def __init__(self, bridge: Bridge, receiver: Receiver) -> None:
        self._bridge = bridge
        self._receiver = receiver

    def put(self, update: Update) -> None:
        self._bridge.post(self._receiver, update)

    def flush(self) -> None:
        self._bridge.flush()
