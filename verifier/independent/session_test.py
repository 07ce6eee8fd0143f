"""The session table against the shared vectors: every frame in every state."""

from __future__ import annotations

from typing import Any

import frames
import pytest
import vectors
from frames import Header
from session import STATES, TABLE, IllegalEventError, Session

FILE = vectors.load("session")
DIRECTIONS = {"W": "receive", "C": "send"}
# The other forms are of programs that take plans; a package has runs of the block alone.
FORMS = ("plain", "folded")
# How a stream ends is no frame: the tape has only its consequence.
JUDGED = [each for each in FILE["vectors"] if "end" not in each]

SENT = [(sender, kind) for sender in DIRECTIONS for kind in frames.KIND_NUMBERS]


def at(form: str, after: str) -> Session:
    session = Session(FILE["phases"], FILE["first_epoch"], folded=form == "folded")
    for frame in FILE["paths"][form][after]:
        direction, header = read(frame)
        assert session.judge(direction, header) is None
        session.accept(direction, header)
    return session


def read(frame: list[Any]) -> tuple[str, Header]:
    sender, kind, flags, epoch, sequence = frame
    return DIRECTIONS[sender], Header(kind, flags, epoch, sequence, 0, 0, 0)


def test_every_state_is_reached() -> None:
    reached = {after.split("/")[0] for form in FORMS for after in FILE["paths"][form]}
    assert reached == set(STATES)


@pytest.mark.parametrize("form", FORMS)
def test_every_frame_in_every_state(form: str) -> None:
    checked = set()
    for vector in JUDGED:
        if vector["form"] != form:
            continue
        session = at(form, vector["after"])
        direction, header = read(vector["frame"])
        code = session.judge(direction, header)
        assert code == vector.get("code"), vector["id"]
        if code is None:
            session.accept(direction, header)
            assert session.state == vector["state"], vector["id"]
            assert session.phase == vector["phase"], vector["id"]
            assert session.epoch("receive") == vector["epoch"], vector["id"]
        checked.add((vector["after"], *vector["frame"][:2]))
    senders = {(after, sender, kind) for after in FILE["paths"][form] for sender, kind in SENT}
    assert checked == senders


def test_a_refused_frame_can_not_be_accepted() -> None:
    session = Session(("attention", "mlp"), 1)
    with pytest.raises(IllegalEventError):
        session.accept("receive", Header("FENCE", 0, 0, 0, 0, 0, 0))


def test_every_event_leads_to_a_state() -> None:
    assert {after for row in TABLE.values() for after in row.events.values()} <= set(STATES)
