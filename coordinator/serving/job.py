"""One body's requests, from submission to the last end. Everything here runs on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from coordinator.request import Finished, RequestEvent, Token, Update
from coordinator.serving.bridge import Bridge, BridgedOutbox
from coordinator.serving.choice import Choice, error_of
from coordinator.serving.generation import Delta
from coordinator.serving.request_observer import RequestObserver
from coordinator.serving.served import Served
from errors import TPError


class Listener(Protocol):
    """A stream's end of a job."""

    def said(self, choice: Choice, delta: Delta) -> None:
        """What one update added."""

    def ended(self, choice: Choice) -> None:
        """A choice is complete."""

    def settled(self) -> None:
        """The job is done: complete, or failed."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a client knows a body by. created: Unix seconds."""

    id: str
    endpoint: str
    created: int
    stream: bool


class Job:
    """begun: done with the first token, or the end. done: every choice has ended, or one failed.

    error: why it failed; the first reason stands. ended: called once, when the engine has ended
    every choice that it was given.
    """

    def __init__(
        self,
        named: Named,
        choices: Sequence[Choice],
        served: Served,
        bridge: Bridge,
        observer: RequestObserver,
        ended: Callable[[Job], None],
    ) -> None:
        self.named = named
        self.choices = tuple(choices)
        self.listener: Listener | None = None
        self.error: TPError | None = None
        self.begun: asyncio.Future[None] = bridge.loop.create_future()
        self.done: asyncio.Future[None] = bridge.loop.create_future()
        self._served = served
        self._bridge = bridge
        self._observer = observer
        self._ended = ended
        self._mistake: Exception | None = None

    def submit(self) -> None:
        """All choices, or none. Raises OverloadError, PoisonedError."""
        try:
            for choice in self.choices:
                outbox = BridgedOutbox(self._bridge, _Receiver(self, choice))
                choice.request_id = self._served.submit(choice.submission, outbox)
        except TPError as refused:
            self.fail(refused)
            raise
        for choice in self.choices:
            self._tell(choice, choice.generation.begin())

    def leave(self, event: RequestEvent) -> None:
        """Ends what lives; nothing happens when all has ended."""
        for choice in self.choices:
            self._end(choice, event)

    def fail(self, error: TPError) -> None:
        """The whole body fails with one of its choices."""
        if self.done.done():
            return
        self.error = error
        self.leave(RequestEvent.CANCEL)
        self._settle()

    @property
    def silent(self) -> bool:
        """No token has come."""
        return all(choice.first is None for choice in self.choices)

    def raise_mistake(self) -> None:
        """A mistake of ours is not a client's answer: it is raised where it can be seen."""
        if self._mistake is not None:
            raise self._mistake

    def receive(self, choice: Choice, update: Update, at: float) -> None:
        """One update of one choice."""
        match update:
            case Token():
                self._token(choice, update, at)
            case Finished():
                self._finished(choice, update)

    def crashed(self, mistake: Exception) -> None:
        self._mistake = mistake
        self.fail(TPError("internal.error", "the service made a mistake; its log tells more"))

    def admitted(self, choice: Choice, at: float) -> None:
        """The choice has left the queue."""
        if choice.admitted is None:
            choice.admitted = at
            self._observer.queued(at - choice.arrived)

    def _token(self, choice: Choice, token: Token, at: float) -> None:
        if choice.generation.stopped:
            return
        if choice.last is None:
            self.admitted(choice, choice.seen_waiting)
            self._observer.first_token(at - choice.arrived)
        else:
            self._observer.inter_token(at - choice.last)
        delta = choice.generation.feed(token)
        choice.count(at)
        if delta.stops:
            self._end(choice, RequestEvent.STOP)
        self._tell(choice, delta)
        if not self.begun.done():
            self.begun.set_result(None)

    def _finished(self, choice: Choice, finished: Finished) -> None:
        choice.finished = finished
        error = error_of(finished)
        # The body's first reason, where this end only follows from it.
        code = None if error is None else (self.error or error).code
        self._observer.finished(finished.outcome.value, code)
        if error is not None:
            self.fail(error)
        elif not self.done.done():
            self._tell(choice, choice.generation.finish(finished))
            if self.listener is not None:
                self.listener.ended(choice)
            if all(one.finished is not None for one in self.choices):
                self._settle()
        if not any(one.live for one in self.choices):
            self._ended(self)

    def _end(self, choice: Choice, event: RequestEvent) -> None:
        """The first end is the one that stands; a second would change nothing."""
        if choice.live and choice.request_id is not None and not choice.ending:
            choice.ending = True
            self._served.end(choice.request_id, event)

    def _tell(self, choice: Choice, delta: Delta) -> None:
        if self.listener is not None and (delta.text or delta.records):
            self.listener.said(choice, delta)

    def _settle(self) -> None:
        if self.listener is not None:
            self.listener.settled()
        self.done.set_result(None)
        if not self.begun.done():
            self.begun.set_result(None)


class _Receiver:
    """A choice's updates, on their way to its job."""

    def __init__(self, job: Job, choice: Choice) -> None:
        self._job = job
        self._choice = choice

    def receive(self, update: Update, at: float) -> None:
        self._job.receive(self._choice, update, at)

    def crashed(self, mistake: Exception) -> None:
        self._job.crashed(mistake)
