"""S1 to S5 and S10, over the full product of states, events, senders and forms."""

from __future__ import annotations

from typing import Any

import pytest

from errors import ContractError, MisuseError, PeerError
from testdata.vectors.reading import load
from wire.frame import Header, Kind, Side
from wire.limits import FLAG_FOLDED
from wire.session import TABLE, Effect, Event, Session, State, event_of

FILE = load("session.json")
PHASES = tuple(FILE["phases"])
PRODUCT = [vector for vector in FILE["vectors"] if "Product" in vector["flags"]]
SIDES = {"W": Side.WORKER, "C": Side.COORDINATOR}


def header(kind: str, flags: int, epoch: int, sequence: int) -> Header:
    return Header(Kind[kind], flags, epoch, sequence, 2, 0, 0)


def session_at(form: str, place: str) -> Session:
    """A session that has read the legal beginning which leads to `place`."""
    session = Session(PHASES, folded="folded" in form, planned="planned" in form)
    for sender, *fields in FILE["paths"][form][place]:
        session.check_and_advance(SIDES[sender], header(*fields))
    return session


def take(session: Session, vector: dict[str, Any]) -> None:
    """The one more frame, or end, of a vector."""
    if "end" in vector:
        session.end(SIDES[vector["end"]])
        return
    sender, *fields = vector["frame"]
    session.check_and_advance(SIDES[sender], header(*fields))


def standing(session: Session) -> tuple[object, ...]:
    return session.state.name, session.phase_index, session.phase_name, session.epoch


@pytest.mark.parametrize("vector", FILE["vectors"], ids=lambda vector: str(vector["id"]))
def test_vector(vector: dict[str, Any]) -> None:
    session = session_at(vector["form"], vector["after"])
    before = standing(session)
    if vector["result"] == "invalid":
        with pytest.raises(PeerError) as refused:
            take(session, vector)
        assert refused.value.code == vector["code"]
        assert standing(session) == before
        return
    take(session, vector)
    agreed = vector["state"], vector["phase_index"], vector["phase"], vector["epoch"]
    assert standing(session) == agreed


@pytest.mark.parametrize("vector", PRODUCT, ids=lambda vector: str(vector["id"]))
def test_a_side_can_stamp_exactly_the_legal_frames(vector: dict[str, Any]) -> None:
    """The product's frames, sent instead of read: the same table judges both."""
    session = session_at(vector["form"], vector["after"])
    if session.state is State.GREETED:
        session.adopt_epoch(FILE["first_epoch"])
    sender, kind, flags, epoch, sequence = vector["frame"]
    if vector["result"] == "invalid":
        with pytest.raises(MisuseError):
            session.stamp(SIDES[sender], Kind[kind], flags)
        return
    assert session.stamp(SIDES[sender], Kind[kind], flags) == (epoch, sequence)
    agreed = vector["state"], vector["phase_index"], vector["phase"], vector["epoch"]
    assert standing(session) == agreed


def test_every_state_has_one_legal_sender_and_sends_only_its_own_kinds() -> None:
    """Blocking I/O cannot deadlock: never do both sides wait, never do both speak."""
    assert TABLE.keys() == set(State)
    for row in TABLE.values():
        for event in row.events.keys() - {Event.END}:
            assert Kind[event.value.split()[0]].sender is row.sender


def test_every_event_and_effect_is_used() -> None:
    assert {event for row in TABLE.values() for event in row.events} == set(Event)
    transitions = [transition for row in TABLE.values() for transition in row.events.values()]
    assert {transition.effect for transition in transitions} == set(Effect)
    assert {transition.target for transition in transitions} | {State.NEW} == set(State)


@pytest.mark.parametrize("folded", [False, True])
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("due", [False, True])
@pytest.mark.parametrize("kind", Kind)
def test_a_program_uses_one_form_of_each_kind(
    kind: Kind, due: bool, folded: bool, last: bool
) -> None:
    """But a program that takes plans has no INPUT."""
    events = [
        event_of(kind, flags, folded=folded, last=last, plan_due=due) for flags in (0, FLAG_FOLDED)
    ]
    assert events.count(None) == (2 if due and kind is Kind.INPUT else 1)


def test_no_table_knows_other_flags() -> None:
    session = session_at("plain", "OPEN/0")
    with pytest.raises(ContractError):
        session.check_and_advance(Side.WORKER, header("PARTIAL", 2, session.epoch, 1))


def test_both_ends_walk_together_for_several_steps() -> None:
    coordinator, worker = Session(), Session()
    turns: list[tuple[Side, Kind]] = [(Side.WORKER, Kind.HELLO), (Side.COORDINATOR, Kind.ACK)]
    step = [(Side.COORDINATOR, Kind.INPUT)]
    for _ in PHASES:
        step += [(Side.COORDINATOR, Kind.COMMAND), (Side.WORKER, Kind.PARTIAL)]
        step += [(Side.WORKER, Kind.FENCE), (Side.COORDINATOR, Kind.REDUCTION)]
    step += [(Side.WORKER, Kind.RESULT)]
    coordinator.adopt_epoch(5)
    for sender, kind in turns + 3 * step:
        if kind is Kind.INPUT and coordinator.state is State.LOADING:
            coordinator.set_program(PHASES, False)
            worker.set_program(PHASES, False)
        here, there = (worker, coordinator) if sender is Side.WORKER else (coordinator, worker)
        epoch, sequence = here.stamp(sender, kind)
        there.check_and_advance(sender, Header(kind, 0, epoch, sequence, 2, 0, 0))
        assert standing(coordinator) == standing(worker)
    assert standing(coordinator) == ("IDLE", 0, "result", 8)


def test_every_planned_step_begins_with_a_plan() -> None:
    session = Session(PHASES, folded=True, planned=True)
    session.adopt_epoch(1)
    start = (Kind.HELLO, Kind.ACK, Kind.LOAD, Kind.FENCE)
    step = (Kind.COMMAND, Kind.FENCE, Kind.COMMAND)
    folded = (Kind.PARTIAL, Kind.REDUCTION, Kind.PARTIAL)
    for kind in start:
        session.stamp(kind.sender, kind)
    for _ in range(3):
        states = []
        for kind in step:
            session.stamp(kind.sender, kind)
            states.append((session.state, session.phase_name))
        assert states == [
            (State.PLANNED, "plan"),
            (State.AGREED, "plan"),
            (State.OPEN, PHASES[0]),
        ]
        for kind in folded:
            session.stamp(kind.sender, kind, FLAG_FOLDED)
        session.stamp(Side.COORDINATOR, Kind.REDUCTION)
        session.stamp(Side.WORKER, Kind.RESULT)


def test_one_phase_is_first_and_last() -> None:
    session = Session(("only",))
    session.adopt_epoch(1)
    for kind in (Kind.HELLO, Kind.ACK, Kind.COMMAND, Kind.PARTIAL, Kind.FENCE, Kind.REDUCTION):
        session.stamp(kind.sender, kind)
    assert session.state is State.LAST


class TestMisuse:
    """Our own mistakes are told from the peer's."""

    def test_ack_needs_an_epoch(self) -> None:
        session = Session()
        session.stamp(Side.WORKER, Kind.HELLO)
        with pytest.raises(MisuseError):
            session.stamp(Side.COORDINATOR, Kind.ACK)

    @pytest.mark.parametrize("epoch", [0, -1, 2**64])
    def test_the_first_epoch_is_positive_and_fits(self, epoch: int) -> None:
        with pytest.raises(MisuseError):
            Session().adopt_epoch(epoch)

    def test_the_epoch_is_set_before_ack(self) -> None:
        session = session_at("plain", "LOADING/0")
        with pytest.raises(MisuseError):
            session.adopt_epoch(1)

    def test_the_program_is_set_once(self) -> None:
        session = Session(PHASES)
        with pytest.raises(MisuseError):
            session.set_program(PHASES, False)

    def test_a_program_has_a_phase(self) -> None:
        with pytest.raises(MisuseError):
            Session(())

    def test_a_command_needs_a_program(self) -> None:
        session = Session()
        session.adopt_epoch(1)
        session.stamp(Side.WORKER, Kind.HELLO)
        session.stamp(Side.COORDINATOR, Kind.ACK)
        with pytest.raises(MisuseError):
            session.stamp(Side.COORDINATOR, Kind.COMMAND)
