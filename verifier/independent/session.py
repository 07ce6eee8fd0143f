"""One session between the coordinator and a worker (session.md S1, S3, S4, S10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from frames import FOLDED, WORKER_KINDS, Header

WORKER, COORDINATOR = "W", "C"


@dataclass(frozen=True)
class Row:
    """A row of S1: who may send in the state, and the state after each event."""

    sender: str
    events: Mapping[str, str]


# S1 without the rows of programs that take plans, of which a package has no run. FOLDED forms are
# events of their own, written with a `+`.
TABLE = {
    "NEW": Row(WORKER, {"HELLO": "GREETED"}),
    "GREETED": Row(COORDINATOR, {"ACK": "LOADING"}),
    "LOADING": Row(
        COORDINATOR,
        {"WEIGHT": "LOADING", "LOAD": "LOAD_OPEN", "INPUT": "FED", "COMMAND": "OPEN"},
    ),
    "LOAD_OPEN": Row(WORKER, {"FENCE": "IDLE"}),
    "IDLE": Row(COORDINATOR, {"INPUT": "FED", "COMMAND": "OPEN"}),
    "FED": Row(COORDINATOR, {"COMMAND": "OPEN"}),
    "OPEN": Row(WORKER, {"PARTIAL": "PARTIAL_SENT", "PARTIAL+": "FENCED"}),
    "PARTIAL_SENT": Row(WORKER, {"FENCE": "FENCED"}),
    "FENCED": Row(COORDINATOR, {"REDUCTION": "REDUCED", "REDUCTION+": "OPEN"}),
    "REDUCED": Row(COORDINATOR, {"COMMAND": "OPEN"}),
    "LAST": Row(WORKER, {"RESULT": "IDLE"}),
}
STATES = tuple(TABLE)


class IllegalEventError(ValueError):
    """A frame was taken that the state refuses: a fault of the caller."""


class Session:
    """Judges the frames of one connection in turn; after a refused frame it must not be used again.

    `phases` are the names of the program's stages, `epoch` the first epoch, which ACK carries.
    """

    def __init__(self, phases: Sequence[str], epoch: int, folded: bool = False) -> None:
        self.state = "NEW"
        self._phases = phases
        self._folded = folded
        self._first_epoch = epoch
        self._epoch = 0
        self._at = 0
        self._started = False
        self._sequences = {"send": 0, "receive": 0}

    def epoch(self, direction: str) -> int:
        """The epoch that the next frame in `direction` must carry (S3)."""
        greeting = self.state == "GREETED" and direction == "send"
        return self._first_epoch if greeting else self._epoch

    @property
    def phase(self) -> str:
        """The phase in which a failure now would be reported (S10)."""
        if self.state in ("NEW", "GREETED"):
            return "hello"
        if self.state in ("LOADING", "LOAD_OPEN", "FED", "IDLE"):
            return "result" if self._started else "load"
        if self.state == "LAST":
            return "result"
        return self._phases[self._at]

    def sequence(self, direction: str) -> int:
        """The sequence number that the next frame in `direction` must carry (S4)."""
        return self._sequences[direction]

    def judge(self, direction: str, header: Header) -> str | None:
        """The code that refuses a frame for epoch, sequence or state, in this order (S5)."""
        if header.epoch != self.epoch(direction):
            return "contract.epoch"
        if header.sequence != self._sequences[direction]:
            return "contract.sequence"
        if not self._has_form(header):
            return "contract.kind"
        if self._next_state(direction, header) is None:
            return "contract.fence" if header.kind in ("PARTIAL", "FENCE") else "contract.kind"
        return None

    def accept(self, direction: str, header: Header) -> None:
        """Takes a frame that `judge` let pass."""
        following = self._next_state(direction, header)
        if following is None:
            raise IllegalEventError(f"{header.kind} is not an event of {self.state}")
        self._epoch = self.epoch(direction)
        self._sequences[direction] += 1
        if self.state == "REDUCED" or (self.state == "FENCED" and following == "OPEN"):
            self._at += 1
        if self.state == "LAST":
            self._epoch += 1
            self._at = 0
        self._started = self._started or header.kind == "COMMAND"
        self.state = following

    def _has_form(self, header: Header) -> bool:
        """Whether a program like this ever sends the kind with these flags (end of S1)."""
        folded = bool(header.flags & FOLDED)
        if header.kind == "PARTIAL":
            return folded == self._folded
        return not folded or (self._folded and header.kind == "REDUCTION")

    def _next_state(self, direction: str, header: Header) -> str | None:
        row = TABLE[self.state]
        sender = WORKER if direction == "receive" else COORDINATOR
        if row.sender != sender or (header.kind in WORKER_KINDS) != (sender == WORKER):
            return None
        last = self._at == len(self._phases) - 1
        event = header.kind + ("+" if header.flags & FOLDED else "")
        if event.startswith("REDUCTION") and (event[-1] == "+") != (self._folded and not last):
            return None
        following = row.events.get(event)
        return "LAST" if following == "REDUCED" and last else following
