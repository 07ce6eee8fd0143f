"""A deadline for each of very many writes, with one timer for all of them.

`asyncio.timeout` around every write costs a quarter of all that a streamed token costs here. The
timer of this one looks when the running write would be due, and else a whole bound later: every
write that begins meanwhile is due after that.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from starlette.types import Message, Send

from errors import MisuseError


class WriteDeadline:
    """Inside it, writes through `bounded` that take longer than `seconds` raise TimeoutError."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._overdue = False
        self._cancelling = 0
        self._task: asyncio.Task[object] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> WriteDeadline:
        self._task = asyncio.current_task()
        if self._task is None:
            raise MisuseError("a deadline needs a task")
        self._cancelling = self._task.cancelling()
        self._timer = self._loop.call_later(self._seconds, self._look)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._overdue or self._task is None:
            return
        # Somebody else may have cancelled the task too; that is then told, and not the deadline.
        if self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def bounded(self, send: Send) -> Send:
        """The same, with the deadline."""

        async def write(message: Message) -> None:
            self._since = self._loop.time()
            await send(message)
            self._since = None

        return write

    def _look(self) -> None:
        now = self._loop.time()
        since = now if self._since is None else self._since
        if now - since >= self._seconds and self._task is not None:
            self._overdue = True
            self._task.cancel()
        else:
            self._timer = self._loop.call_at(since + self._seconds, self._look)
