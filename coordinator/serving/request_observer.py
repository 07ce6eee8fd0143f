"""What the front end tells whoever measures requests."""

from __future__ import annotations

from typing import Protocol


class RequestObserver(Protocol):
    """Called on the event loop; must neither wait nor raise. Seconds are of `Served.clock`."""

    def queued(self, seconds: float) -> None:
        """A request left the queue, this long after it arrived."""

    def first_token(self, seconds: float) -> None:
        """Its first token was published, this long after the request arrived."""

    def inter_token(self, seconds: float) -> None:
        """A further token was published, this long after the one before."""

    def finished(self, outcome: str, code: str | None) -> None:
        """A request ended: once for each prompt of an accepted body, and once for a refused body.

        outcome: `Outcome`'s value, or `refused` when no rank ever heard of it. code: the error's.
        """


class NoObserver:
    """Nobody measures."""

    def queued(self, seconds: float) -> None: ...

    def first_token(self, seconds: float) -> None: ...

    def inter_token(self, seconds: float) -> None: ...

    def finished(self, outcome: str, code: str | None) -> None: ...
