"""The request table over the full product of states and events."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coordinator.request import (
    OUTCOMES,
    TABLE,
    Outcome,
    RequestEvent,
    RequestLife,
    RequestState,
)
from errors import MisuseError

# Written out a second time, by state, in the words of docs/spec/plan.md; None: our mistake.
EXPECTED = {
    "waiting": {
        "admit": "running",
        "reject": "finished",
        "advance": None,
        "stop": None,
        "length": None,
        "cancel": "finished",
        "disconnect": "finished",
        "drop": "finished",
        "released": None,
        "poison": "finished",
    },
    "running": {
        "admit": None,
        "reject": None,
        "advance": "running",
        "stop": "releasing",
        "length": "releasing",
        "cancel": "releasing",
        "disconnect": "releasing",
        "drop": "releasing",
        "released": None,
        "poison": "finished",
    },
    "releasing": {
        "admit": None,
        "reject": None,
        "advance": None,
        "stop": "releasing",
        "length": None,
        "cancel": "releasing",
        "disconnect": "releasing",
        "drop": "releasing",
        "released": "finished",
        "poison": "finished",
    },
    "finished": dict.fromkeys([event.value for event in RequestEvent]),
}
PATHS = {
    RequestState.WAITING: (),
    RequestState.RUNNING: (RequestEvent.ADMIT,),
    RequestState.RELEASING: (RequestEvent.ADMIT, RequestEvent.LENGTH),
    RequestState.FINISHED: (RequestEvent.REJECT,),
}


def life_in(state: RequestState) -> RequestLife:
    life = RequestLife()
    for event in PATHS[state]:
        life.on(event)
    return life


@pytest.mark.parametrize("event", RequestEvent)
@pytest.mark.parametrize("state", RequestState)
def test_full_product(state: RequestState, event: RequestEvent) -> None:
    life = life_in(state)
    assert life.state is state
    before = life.outcome
    expected = EXPECTED[state.value][event.value]
    if expected is None:
        with pytest.raises(MisuseError):
            life.on(event)
        assert (life.state, life.outcome) == (state, before)
        return
    assert life.on(event).value == expected
    assert life.state.value == expected
    # A request has an outcome exactly when it is on its way out.
    ended = life.state in (RequestState.RELEASING, RequestState.FINISHED)
    assert (life.outcome is not None) == ended


def test_the_table_names_every_state() -> None:
    assert set(TABLE) == set(RequestState)


def test_the_document_has_the_same_table() -> None:
    """docs/spec/plan.md, L13: `event`, `event` -> `next`; ..."""
    text = Path("docs/spec/plan.md").read_text("utf-8")
    for state, row in EXPECTED.items():
        (line,) = [line for line in text.splitlines() if line.startswith(f"| `{state}` |")]
        documented: dict[str, str | None] = dict.fromkeys(row)
        for part in line.split("|")[2].split(";"):
            if "->" in part:
                events, following = part.split("->")
                names = re.findall(r"`(\w+)`", events)
                documented.update(dict.fromkeys(names, following.strip(" `")))
        assert documented == row


@pytest.mark.parametrize("first", [RequestEvent.STOP, RequestEvent.LENGTH, RequestEvent.CANCEL])
@pytest.mark.parametrize(
    "later", [RequestEvent.STOP, RequestEvent.CANCEL, RequestEvent.DISCONNECT, RequestEvent.DROP]
)
def test_the_first_outcome_stands(first: RequestEvent, later: RequestEvent) -> None:
    life = life_in(RequestState.RUNNING)
    life.on(first)
    life.on(later)
    life.on(RequestEvent.RELEASED)
    assert life.outcome is OUTCOMES[first]


def test_poison_fails_a_success_that_was_not_published() -> None:
    life = life_in(RequestState.RELEASING)
    life.on(RequestEvent.POISON)
    assert life.outcome is Outcome.FAILED
