"""The life of one request: the table, and the events it ends with.

Everything that changes a request's state goes through `RequestLife.on`. The table is the whole
truth; an event without an entry is a mistake of ours and crashes (MisuseError). Docs:
docs/spec/plan.md, L13 to L15.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

from errors import MisuseError, TPError
from program.artifacts import TokenLogprob


class RequestState(Enum):
    """WAITING: no rank knows it. RUNNING: it holds a slot. RELEASING: its Release is due."""

    WAITING = "waiting"
    RUNNING = "running"
    RELEASING = "releasing"
    FINISHED = "finished"

    # Members are singletons; Enum's own hash is a Python call, and every row looks up a transition.
    __hash__ = object.__hash__


class RequestEvent(Enum):
    """What can happen to a request."""

    ADMIT = "admit"
    REJECT = "reject"
    ADVANCE = "advance"
    STOP = "stop"
    LENGTH = "length"
    CANCEL = "cancel"
    DISCONNECT = "disconnect"
    DROP = "drop"
    RELEASED = "released"
    POISON = "poison"

    __hash__ = object.__hash__


class Outcome(Enum):
    """How a request ended. STOP and LENGTH are successes."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"
    DISCONNECTED = "disconnected"
    DROPPED = "dropped"
    REJECTED = "rejected"
    FAILED = "failed"


_STATE = RequestState
_EVENT = RequestEvent

TABLE: Final = MappingProxyType(
    {
        _STATE.WAITING: {
            _EVENT.ADMIT: _STATE.RUNNING,
            _EVENT.REJECT: _STATE.FINISHED,
            _EVENT.CANCEL: _STATE.FINISHED,
            _EVENT.DISCONNECT: _STATE.FINISHED,
            _EVENT.DROP: _STATE.FINISHED,
            _EVENT.POISON: _STATE.FINISHED,
        },
        _STATE.RUNNING: {
            _EVENT.ADVANCE: _STATE.RUNNING,
            _EVENT.STOP: _STATE.RELEASING,
            _EVENT.LENGTH: _STATE.RELEASING,
            _EVENT.CANCEL: _STATE.RELEASING,
            _EVENT.DISCONNECT: _STATE.RELEASING,
            _EVENT.DROP: _STATE.RELEASING,
            _EVENT.POISON: _STATE.FINISHED,
        },
        # The first outcome stands: a client that hangs up now changes nothing.
        _STATE.RELEASING: {
            _EVENT.STOP: _STATE.RELEASING,
            _EVENT.CANCEL: _STATE.RELEASING,
            _EVENT.DISCONNECT: _STATE.RELEASING,
            _EVENT.DROP: _STATE.RELEASING,
            _EVENT.RELEASED: _STATE.FINISHED,
            _EVENT.POISON: _STATE.FINISHED,
        },
        _STATE.FINISHED: {},
    }
)

# What an event says about the end, as long as nothing earlier did.
OUTCOMES: Final = MappingProxyType(
    {
        _EVENT.REJECT: Outcome.REJECTED,
        _EVENT.STOP: Outcome.STOP,
        _EVENT.LENGTH: Outcome.LENGTH,
        _EVENT.CANCEL: Outcome.CANCELLED,
        _EVENT.DISCONNECT: Outcome.DISCONNECTED,
        _EVENT.DROP: Outcome.DROPPED,
    }
)


class RequestLife:
    """State and outcome of one request."""

    def __init__(self) -> None:
        self.state = RequestState.WAITING
        self.outcome: Outcome | None = None

    def on(self, event: RequestEvent) -> RequestState:
        """Moves to the next state. Raises MisuseError where the table has no entry.

        A poisoned group fails every live request, also one whose success was not yet published:
        its clean-up was never acknowledged.
        """
        following = TABLE[self.state].get(event)
        if following is None:
            raise MisuseError(f"a request in state {self.state.value} can't {event.value}")
        self.state = following
        if event is RequestEvent.POISON:
            self.outcome = Outcome.FAILED
        elif self.outcome is None:
            self.outcome = OUTCOMES.get(event)
        return following


@dataclass(frozen=True, slots=True)
class Token:
    """One token for the client. index: 0 for the first generated one; step: where it was made."""

    request_id: int
    step: int
    index: int
    token_id: int
    logprob: float | None
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The one terminal event of a request.

    step: the step that acknowledged the release; None when no rank ever knew the request, or the
    group failed. error: why, for REJECTED and FAILED.
    """

    request_id: int
    outcome: Outcome
    step: int | None
    prompt_tokens: int
    completion_tokens: int
    error: TPError | None = None


Update = Token | Finished
