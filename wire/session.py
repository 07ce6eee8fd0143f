"""The session (docs/spec/session.md S1 to S5): THE transition table and all that changes with it.

Everything that changes a session's state is in this file, and nothing here knows which side it is
on: both ends run the same table, with the sender of each frame as an input.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from errors import ContractError, MisuseError, ProtocolError
from wire.frame import Header, Kind, Side
from wire.limits import FLAG_FOLDED

# Half of what a ledger's integers hold is left for steps (docs/spec/session.md, S3).
FIRST_EPOCH_MAX: Final = 1 << 52
HELLO_PHASE: Final = "hello"
LOAD_PHASE: Final = "load"
PLAN_PHASE: Final = "plan"
RESULT_PHASE: Final = "result"


class State(Enum):
    """The states of S1, and CLOSED after the clean end of S2."""

    NEW = "NEW"
    GREETED = "GREETED"
    LOADING = "LOADING"
    LOAD_OPEN = "LOAD_OPEN"
    IDLE = "IDLE"
    PLANNED = "PLANNED"
    AGREED = "AGREED"
    FED = "FED"
    OPEN = "OPEN"
    PARTIAL_SENT = "PARTIAL_SENT"
    FENCED = "FENCED"
    REDUCED = "REDUCED"
    LAST = "LAST"
    CLOSED = "CLOSED"

    # Members are singletons; Enum's own hash is a Python call, and these are keys of hot tables.
    __hash__ = object.__hash__


class Event(Enum):
    """What happens to a session: a frame by kind, form and place, or the end of the stream."""

    HELLO = "HELLO"
    ACK = "ACK"
    WEIGHT = "WEIGHT"
    LOAD = "LOAD"
    INPUT = "INPUT"
    COMMAND = "COMMAND"
    COMMAND_PLAN = "COMMAND with a plan"
    PARTIAL = "PARTIAL"
    PARTIAL_FOLDED = "PARTIAL with FOLDED"
    FENCE = "FENCE"
    REDUCTION = "REDUCTION"
    REDUCTION_FOLDED = "REDUCTION with FOLDED"
    REDUCTION_LAST = "REDUCTION in the last phase"
    RESULT = "RESULT"
    END = "end of the stream"

    __hash__ = object.__hash__


class Effect(Enum):
    """What a transition does besides changing the state: counters (S1, S3), phase names (S10)."""

    NONE = "none"
    LOADING_BEGINS = "the phase is named load"
    PLAN_BEGINS = "the phase is named plan"
    FIRST_PHASE = "phase 0"
    NEXT_PHASE = "phase + 1"
    RESULT_DUE = "the phase is named result"
    NEXT_EPOCH = "epoch + 1, phase 0"


class Transition(NamedTuple):
    target: State
    effect: Effect = Effect.NONE


class Row(NamedTuple):
    """A state's only legal sender, and what that sender may do."""

    sender: Side
    events: dict[Event, Transition]


_W, _C = Side.WORKER, Side.COORDINATOR
_COMMAND: Final = Transition(State.OPEN, Effect.FIRST_PHASE)

TABLE: Final[dict[State, Row]] = {
    State.NEW: Row(_W, {Event.HELLO: Transition(State.GREETED)}),
    State.GREETED: Row(_C, {Event.ACK: Transition(State.LOADING, Effect.LOADING_BEGINS)}),
    State.LOADING: Row(
        _C,
        {
            Event.WEIGHT: Transition(State.LOADING),
            Event.LOAD: Transition(State.LOAD_OPEN),
            Event.INPUT: Transition(State.FED),
            Event.COMMAND: _COMMAND,
        },
    ),
    State.LOAD_OPEN: Row(_W, {Event.FENCE: Transition(State.IDLE)}),
    State.IDLE: Row(
        _C,
        {
            Event.INPUT: Transition(State.FED),
            Event.COMMAND: _COMMAND,
            Event.COMMAND_PLAN: Transition(State.PLANNED, Effect.PLAN_BEGINS),
            Event.END: Transition(State.CLOSED),
        },
    ),
    State.PLANNED: Row(_W, {Event.FENCE: Transition(State.AGREED)}),
    State.AGREED: Row(_C, {Event.COMMAND: _COMMAND}),
    State.FED: Row(_C, {Event.COMMAND: _COMMAND}),
    State.OPEN: Row(
        _W,
        {
            Event.PARTIAL: Transition(State.PARTIAL_SENT),
            Event.PARTIAL_FOLDED: Transition(State.FENCED),
        },
    ),
    State.PARTIAL_SENT: Row(_W, {Event.FENCE: Transition(State.FENCED)}),
    State.FENCED: Row(
        _C,
        {
            Event.REDUCTION: Transition(State.REDUCED),
            Event.REDUCTION_LAST: Transition(State.LAST, Effect.RESULT_DUE),
            Event.REDUCTION_FOLDED: Transition(State.OPEN, Effect.NEXT_PHASE),
        },
    ),
    State.REDUCED: Row(_C, {Event.COMMAND: Transition(State.OPEN, Effect.NEXT_PHASE)}),
    State.LAST: Row(_W, {Event.RESULT: Transition(State.IDLE, Effect.NEXT_EPOCH)}),
    State.CLOSED: Row(_C, {}),
}


def event_of(
    kind: Kind, flags: int, *, folded: bool, last: bool, plan_due: bool = False
) -> Event | None:
    """The event of a frame; None for the form that the program does not use (S1).

    folded: the program uses the FOLDED forms. last: the running phase is the program's last.
    plan_due: the program takes plans, and the step that comes next has none yet.
    """
    is_folded = bool(flags & FLAG_FOLDED)
    if kind is Kind.PARTIAL:
        if is_folded is not folded:
            return None
        return Event.PARTIAL_FOLDED if is_folded else Event.PARTIAL
    if kind is Kind.REDUCTION:
        if is_folded is not (folded and not last):
            return None
        if is_folded:
            return Event.REDUCTION_FOLDED
        return Event.REDUCTION_LAST if last else Event.REDUCTION
    if is_folded or (plan_due and kind is Kind.INPUT):
        return None
    return Event.COMMAND_PLAN if plan_due and kind is Kind.COMMAND else Event[kind.name]


_FLAGS: Final = (False, True)
# Kind, flags, folded, last, plan due -> event; computed once, so that a frame costs one look-up.
_EVENTS: Final[dict[tuple[int, int, bool, bool, bool], Event]] = {
    (int(kind), flags, folded, last, due): event
    for kind in Kind
    for flags in (0, FLAG_FOLDED)
    for folded in _FLAGS
    for last in _FLAGS
    for due in _FLAGS
    if (event := event_of(kind, flags, folded=folded, last=last, plan_due=due)) is not None
}


class Session:
    """The state of one connection, the same on both ends.

    phases: names of the program's stages in order, None until the program is known (a worker
    learns it from ACK). folded: whether the program uses the FOLDED forms. planned: whether each
    of its steps begins with a plan that all ranks accept.
    """

    def __init__(
        self, phases: tuple[str, ...] | None = None, folded: bool = False, planned: bool = False
    ) -> None:
        self.state = State.NEW
        self.epoch = 0
        self.phase_index = 0
        self.phase_name = HELLO_PHASE
        self._first_epoch: int | None = None
        self._sequences: dict[Side, int] = {Side.WORKER: 0, Side.COORDINATOR: 0}
        self._phases: tuple[str, ...] = ()
        self._folded = folded
        self._planned = planned
        self._last = False
        self._plan_due = False
        if phases is not None:
            self.set_program(phases, folded, planned)

    def set_program(self, phases: tuple[str, ...], folded: bool, planned: bool = False) -> None:
        """The program's phases; once, before the first COMMAND."""
        if self._phases or not phases:
            raise MisuseError("a session's program is set once and has at least one phase")
        self._phases = phases
        self._folded = folded
        self._planned = self._plan_due = planned
        self._last = len(phases) == 1

    def adopt_epoch(self, first_epoch: int) -> None:
        """The first epoch (at least 1), which the coordinator's ACK will carry."""
        if self.state not in (State.NEW, State.GREETED) or not 1 <= first_epoch < 2**64:
            raise MisuseError(f"first epoch {first_epoch} in state {self.state.name}")
        self._first_epoch = first_epoch

    def check_and_advance(self, sender: Side, header: Header) -> None:
        """Judge a frame that was read (S5: epoch, sequence, kind) and take its transition.

        ContractError epoch, sequence, kind or fence; then the session has not changed.
        """
        epoch = header.epoch
        if self.state is State.GREETED and sender is Side.COORDINATOR:
            if not 1 <= epoch <= FIRST_EPOCH_MAX:
                agreed = f"agreed 1 to {FIRST_EPOCH_MAX}"
                raise ContractError("epoch", f"received first epoch {epoch}, {agreed}")
        elif epoch != self.epoch:
            raise _differs("epoch", epoch, self.epoch)
        sequence = self._sequences[sender]
        if header.sequence != sequence:
            raise _differs("sequence", header.sequence, sequence)
        transition = self._transition(sender, header.kind, header.flags)
        if transition is None:
            raise self._illegal(sender, header.kind, header.flags)
        self.epoch = epoch
        self._take(sender, sequence, transition)

    def stamp(self, sender: Side, kind: Kind, flags: int = 0) -> tuple[int, int]:
        """Take the transition of a frame of ours; returns its (epoch, sequence).

        MisuseError if the table does not allow it.
        """
        transition = self._transition(sender, kind, flags)
        if transition is None:
            raise MisuseError(self._illegal(sender, kind, flags).message)
        if kind is Kind.ACK:
            if self._first_epoch is None:
                raise MisuseError("adopt_epoch must be called before ACK is sent")
            self.epoch = self._first_epoch
        epoch, sequence = self.epoch, self._sequences[sender]
        self._take(sender, sequence, transition)
        return epoch, sequence

    def end(self, sender: Side, errno: int | None = None) -> None:
        """The stream from `sender` ended at a frame boundary; ProtocolError closed unless S2.

        errno: that with which it ended, if any; it changes nothing.
        """
        row = TABLE[self.state]
        transition = row.events.get(Event.END)
        if transition is None or row.sender is not sender:
            message = f"the {sender.value} closed in state {self.state.name}"
            raise ProtocolError("closed", message, errno=errno)
        self.state = transition.target

    def _transition(self, sender: Side, kind: int, flags: int) -> Transition | None:
        row = TABLE[self.state]
        if row.sender is not sender:
            return None
        event = _EVENTS.get((kind, flags, self._folded, self._last, self._plan_due))
        return None if event is None else row.events.get(event)

    def _take(self, sender: Side, sequence: int, transition: Transition) -> None:
        state, effect = transition
        self._sequences[sender] = sequence + 1
        self.state = state
        if effect is Effect.NONE:
            return
        if effect is Effect.FIRST_PHASE:
            self._enter(0)
        elif effect is Effect.NEXT_PHASE:
            self._enter(self.phase_index + 1)
        elif effect is Effect.RESULT_DUE:
            self.phase_name = RESULT_PHASE
        elif effect is Effect.NEXT_EPOCH:
            self.epoch += 1
            self.phase_index = 0
            self._plan_due = self._planned
        elif effect is Effect.PLAN_BEGINS:
            self._plan_due = False
            self.phase_name = PLAN_PHASE
        else:
            self.phase_name = LOAD_PHASE

    def _enter(self, phase_index: int) -> None:
        """S10: from now on the running phase names the place of a failure."""
        if not self._phases:
            raise MisuseError("set_program must be called before COMMAND")
        self.phase_index = phase_index
        self.phase_name = self._phases[phase_index]
        self._last = phase_index == len(self._phases) - 1

    def _illegal(self, sender: Side, kind: Kind, flags: int) -> ContractError:
        row = TABLE[self.state]
        form = " with FOLDED" if flags & FLAG_FOLDED else ""
        agreed = ", ".join(event.value for event in row.events) or "nothing"
        message = (
            f"received {kind.name}{form} from the {sender.value} in state {self.state.name}, "
            f"agreed {agreed} from the {row.sender.value}"
        )
        other_form = event_of(kind, flags, folded=self._folded, last=self._last) is None
        is_fence = kind in (Kind.PARTIAL, Kind.FENCE) and not other_form
        return ContractError("fence" if is_fence else "kind", message)


def _differs(name: str, received: int, agreed: int) -> ContractError:
    return ContractError(name, f"received {name} {received}, agreed {agreed}")
