"""docs/spec/service.md says what the lines of the control socket are; here they are held to it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from coordinator.fake_snapshot import SNAPSHOT
from coordinator.rank_watch import GRACE_MS
from coordinator.request import Finished, Outcome, Token
from coordinator.service import CLIENTS_MAX
from coordinator.service_client import UNREAD_BYTES_MAX
from coordinator.service_protocol import (
    LINE_BYTES_MAX,
    TAG_CHARACTERS_MAX,
    EndCommand,
    Operation,
    accepted_line,
    ended_line,
    parse_command,
    refused_line,
    state_line,
    update_line,
)
from errors import RequestError

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "spec" / "service.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
REFUSED = RequestError("request.range", "no", param="seed")
LINES = [
    accepted_line("a", 1),
    refused_line("a", REFUSED),
    ended_line(EndCommand(Operation.CANCEL, 1), True),
    update_line(Token(1, 2, 0, 3, None, ())),
    update_line(Finished(1, Outcome.LENGTH, 2, 3, 1)),
    state_line(SNAPSHOT),
]


def rows(header: str) -> dict[str, str]:
    """First cell (without backquotes) to second, of the table with this first column."""
    lines = TEXT.split(f"\n| {header} |", 1)[1].splitlines()[2:]
    found = {}
    for line in lines:
        if not line.startswith("|"):
            break
        first, second, *_ = (cell.strip() for cell in line.strip("| ").split(" | "))
        found[first.strip("`")] = second
    return found


def names(cell: str) -> set[str]:
    """The keys a cell names; what stands in parentheses explains them."""
    return set(re.findall(r"`([a-z_]+)`", re.sub(r"\([^)]*\)", "", cell)))


@pytest.mark.parametrize("line", LINES)
def test_the_keys_of_every_event(line: bytes) -> None:
    value = json.loads(line)
    assert set(value) - {"event"} == names(rows("`event`")[value["event"]])


def test_every_event_is_there() -> None:
    assert set(rows("`event`")) == {json.loads(line)["event"] for line in LINES}


def test_every_operation_is_there() -> None:
    assert set(rows("`op`")) == {operation.value for operation in Operation}


def test_the_keys_of_the_state() -> None:
    state = json.loads(state_line(SNAPSHOT))["state"]
    assert set(rows("key")) == set(state)
    for key in ("limits", "ranks", "requests", "slots"):
        part = state[key] if isinstance(state[key], dict) else state[key][0]
        cell = rows("key")[key]
        assert set(part) <= set(re.findall(r"`([a-z_]+)`", cell)), key


def test_the_keys_of_an_error() -> None:
    error = json.loads(refused_line(None, REFUSED))["error"]
    (said,) = re.findall(r"An error has exactly ([^;]+);", TEXT)
    assert set(error) == names(said)


def test_the_numbers() -> None:
    for number in (LINE_BYTES_MAX, UNREAD_BYTES_MAX):
        assert f"{number:,} bytes" in TEXT
    assert f"At most {CLIENTS_MAX} clients" in TEXT
    assert f"at most {TAG_CHARACTERS_MAX} characters" in TEXT
    assert f"{GRACE_MS} ms" in TEXT


def test_the_example() -> None:
    example = TEXT.split("## Example")[1]
    for line in re.findall(r"^> (.*)$", example, re.MULTILINE):
        parse_command(line.encode("ascii"))
    for line in re.findall(r"^< (.*)$", example, re.MULTILINE):
        value = json.loads(line)
        assert json.dumps(value, sort_keys=True, separators=(",", ":")) == line
        assert set(value) - {"event"} == names(rows("`event`")[value["event"]])
