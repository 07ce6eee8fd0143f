"""A server with one planted mistake, by name; to show that a gate over HTTP can fail.

    http_mutants NAME MODULE -- ARGUMENTS OF THE COORDINATOR

All else is as in serve_process.py.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from coordinator import engine_inbox
from coordinator.gates import serve_process
from coordinator.serving import access, backend, health
from errors import PeerError


def _wrapped(owner: Any, name: str, changed: Callable[..., Any]) -> None:
    """`changed` is called instead, with what it replaces as its first argument."""
    original = getattr(owner, name)
    setattr(owner, name, lambda *given, **named: changed(original, *given, **named))


def nobody_failed() -> None:
    """The failure's rank is not told."""
    _wrapped(health, "failure_json", lambda original, *given: {**original(*given), "rank": None})


def ends_well() -> None:
    """A failure ends with exit code 0."""
    PeerError.exit_code = 0


def same_epoch() -> None:
    """New ranks start with the epoch of the first ones."""
    _wrapped(backend, "replace", lambda original, manifest, **named: original(manifest, epoch=1))


def no_drain() -> None:
    """The first signal drops what runs."""
    _wrapped(backend.Backend, "stop", lambda original, self, deadline: original(self, 0.0))


def stops_at_once() -> None:
    """The engine gives nobody the time to finish."""
    _wrapped(engine_inbox.Inbox, "stop", lambda original, self, deadline: original(self, 0.0))


def deaf_to_ends() -> None:
    """A request goes on although its client has left."""
    _wrapped(backend.Backend, "end", lambda original, *given: None)


def any_key() -> None:
    """Every key is right, also none."""
    _wrapped(access.Access, "_judge", lambda original, *given: None)


def endless_queue() -> None:
    """As many may wait as want to."""

    def scheduler(original: Any, limits: Any, **named: Any) -> Any:
        return original(limits, **{**named, "waiting_max": 10_000})

    _wrapped(backend, "Scheduler", scheduler)
    _wrapped(backend, "Inbox", lambda original, waiting_max, wake: original(10_000, wake))


def leaks() -> None:
    """Every request leaves a descriptor open."""

    def submit(original: Any, *given: Any) -> Any:
        os.open(os.devnull, os.O_RDONLY)
        return original(*given)

    _wrapped(backend.Backend, "submit", submit)


MUTANTS: Final[Mapping[str, Callable[[], None]]] = {
    plant.__name__: plant
    for plant in (
        nobody_failed,
        ends_well,
        same_epoch,
        no_drain,
        stops_at_once,
        deaf_to_ends,
        any_key,
        endless_queue,
        leaks,
    )
}


def main(argv: Sequence[str]) -> int:
    name, *rest = argv
    MUTANTS[name]()
    return serve_process.main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
