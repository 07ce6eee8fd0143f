"""What front ends tell the engine: the one place where threads meet.

Values only. A front end gets its request's id at once, and every update of the request later,
through the outbox it gave. It must not know sockets, steps or ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Protocol

from coordinator.request import RequestEvent, Update
from coordinator.scheduler import CLIENT_EVENTS
from coordinator.submission import Submission
from errors import MisuseError, OverloadError


class Outbox(Protocol):
    """Where one client's updates go."""

    def put(self, update: Update) -> None:
        """Called by the engine's thread; must neither wait nor raise."""

    def flush(self) -> None:
        """What was put is all for now. As `put`; also called where nothing was put since."""


class Submissions(Protocol):
    """What a front end does to requests; an Inbox is one."""

    def submit(self, submission: Submission, outbox: Outbox) -> int:
        """See `Inbox.submit`."""

    def end(self, request_id: int, event: RequestEvent) -> None:
        """See `Inbox.end`."""


@dataclass(frozen=True, slots=True)
class Submit:
    """A valid request, and where its updates go."""

    request_id: int
    submission: Submission
    outbox: Outbox


@dataclass(frozen=True, slots=True)
class End:
    """The client's side of the end: cancel, disconnect, drop, or stop (a stop string was found)."""

    request_id: int
    event: RequestEvent


@dataclass(frozen=True, slots=True)
class Stop:
    """No more requests; those that live have until `deadline` (the engine's clock) to finish."""

    deadline: float


Event = Submit | End | Stop


class Inbox:
    """Thread-safe. submits_max: requests that may lie here until the engine takes them.

    wake: called after every put, to end the engine's wait.
    """

    def __init__(self, submits_max: int, wake: Callable[[], None]) -> None:
        self._submits_max = submits_max
        self._wake = wake
        self._lock = Lock()
        self._events: list[Event] = []
        self._submits = 0
        self._next_id = 0
        self._stopping = False

    def submit(self, submission: Submission, outbox: Outbox) -> int:
        """The request's id. Ids rise in the order in which the engine will see the requests.

        Raises OverloadError: `overload.stopping` after a stop, `overload.queue` when the engine has
        not yet taken as many requests as may wait.
        """
        with self._lock:
            if self._stopping:
                raise OverloadError("overload.stopping", "the service is stopping")
            if self._submits >= self._submits_max:
                raise OverloadError("overload.queue", f"{self._submits} requests are on their way")
            request_id = self._next_id
            self._next_id += 1
            self._submits += 1
            self._events.append(Submit(request_id, submission, outbox))
        self._wake()
        return request_id

    def end(self, request_id: int, event: RequestEvent) -> None:
        """Unknown and finished requests may be named; that changes nothing.

        STOP is for a request of which a token was published (plan.md L13).
        """
        if event not in CLIENT_EVENTS:
            raise MisuseError(f"a client can't {event.value} a request")
        self._put(End(request_id, event))

    def stop(self, deadline: float) -> None:
        """May be called again with an earlier deadline."""
        with self._lock:
            self._stopping = True
        self._put(Stop(deadline))

    def drain(self) -> list[Event]:
        """What came since the last call, in order."""
        with self._lock:
            events, self._events = self._events, []
            self._submits = 0
        return events

    def _put(self, event: Event) -> None:
        with self._lock:
            self._events.append(event)
        self._wake()
