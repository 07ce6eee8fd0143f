"""docs/spec/session.md shows the table that the code runs."""

from __future__ import annotations

from pathlib import Path

from wire.session import TABLE, Event, Row, State, Transition
from wire.session_document import diagram, table

SESSION_MD = Path(__file__).parents[1] / "docs" / "spec" / "session.md"


def test_the_document_holds_the_table_and_no_other() -> None:
    text = SESSION_MD.read_text(encoding="utf-8")
    assert f"\n\n{table()}\n\n" in text
    assert text.count("| state | sender |") == 1


def test_the_document_holds_the_diagram() -> None:
    assert f"\n```mermaid\n{diagram()}\n```\n" in SESSION_MD.read_text(encoding="utf-8")


def test_a_changed_table_would_not_be_in_the_document() -> None:
    changed = TABLE | {State.NEW: Row(TABLE[State.NEW].sender, {Event.ACK: Transition(State.IDLE)})}
    text = SESSION_MD.read_text(encoding="utf-8")
    assert table(changed) not in text
    assert diagram(changed) not in text
