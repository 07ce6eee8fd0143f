"""The session table as documents show it; docs/spec/session.md must hold exactly this text."""

from __future__ import annotations

from collections.abc import Mapping

from wire.frame import Side
from wire.session import TABLE, Effect, Event, Row, State, Transition

_LETTERS = {Side.WORKER: "W", Side.COORDINATOR: "C"}
# The other effects are named by S10 and follow from the state.
_SHOWN_EFFECTS = frozenset({Effect.NEXT_PHASE, Effect.NEXT_EPOCH})


def table(rows: Mapping[State, Row] = TABLE) -> str:
    """S1 as a Markdown table."""
    lines = ["| state | sender | event -> next state |", "|---|:-:|---|"]
    for state, row in rows.items():
        if state is State.CLOSED:
            continue
        cells = [_arrow(event, transition) for event, transition in row.events.items()]
        lines.append(f"| {state.name} | {_LETTERS[row.sender]} | {'; '.join(cells)} |")
    return "\n".join(lines)


def diagram(rows: Mapping[State, Row] = TABLE) -> str:
    """S1 as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.NEW.name}"]
    for state, row in rows.items():
        for event, transition in row.events.items():
            label = f"{_LETTERS[row.sender]} {event.value}{_effect(transition)}"
            lines.append(f"    {state.name} --> {transition.target.name}: {label}")
    return "\n".join([*lines, f"    {State.CLOSED.name} --> [*]"])


def _arrow(event: Event, transition: Transition) -> str:
    return f"{event.value} -> {transition.target.name}{_effect(transition)}"


def _effect(transition: Transition) -> str:
    return f", {transition.effect.value}" if transition.effect in _SHOWN_EFFECTS else ""
