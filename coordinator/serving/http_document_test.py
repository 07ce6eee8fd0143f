"""docs/spec/http.md names what the routes take and answer, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from coordinator.serving.api_options import ApiOptions
from coordinator.serving.chat_body import DEFAULT_TOKENS as CHAT_TOKENS
from coordinator.serving.chat_body import MESSAGES_MAX, TEMPLATE_ARGUMENTS_MAX, parse_chat
from coordinator.serving.chat_template import REPEATED_MAX
from coordinator.serving.completion_body import DEFAULT_TOKENS as COMPLETION_TOKENS
from coordinator.serving.completion_body import parse_completion
from coordinator.serving.errors_http import STATUSES
from coordinator.serving.fake_served import LIMITS
from coordinator.serving.fields import Fields
from coordinator.serving.parameters import STOP_CHARACTERS_MAX, STOP_STRINGS_MAX

TEXT = Path("docs/spec/http.md").read_text("utf-8")


def clause(number: int) -> str:
    """Its text, up to the next one."""
    return TEXT.split(f"**H{number}.", 1)[1].split("\n**H", 1)[0]


def parameters(number: int) -> set[str]:
    """Names in the first column of the clause's table."""
    cells = re.findall(r"^\| (`[^|]*`) \|", clause(number), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names that the reader of a body asks for, of the body itself."""
    names: set[str] = set()
    take = Fields.take

    def recorded(self: Fields, key: str) -> object:
        if self.name(key) == key:
            names.add(key)
        return take(self, key)

    monkeypatch.setattr(Fields, "take", recorded)
    return names


def test_the_parameters_of_completions(taken: set[str]) -> None:
    parse_completion({"prompt": "x"}, "m", LIMITS, ApiOptions())
    assert taken == parameters(52) | parameters(53)


def test_the_parameters_of_chat_completions(taken: set[str]) -> None:
    parse_chat({"messages": [{"role": "user", "content": "x"}]}, "m", LIMITS)
    refused = set(
        re.findall(r"`(\w+)`", clause(54).split("Every other value")[1].split("at all")[0])
    )
    assert taken == parameters(52) | parameters(54) | refused


def test_the_codes_and_their_statuses() -> None:
    told = {
        code: statuses
        for statuses, codes in re.findall(r"^\| ([\d, ]+) \| (`[^|]*) \|", clause(51), re.MULTILINE)
        for code in re.findall(r"`([^`]+)`", codes)
    }
    for code, status in STATUSES.items():
        assert str(status) in told[code]


def test_the_numbers() -> None:
    for clause_number, number in [
        (52, STOP_STRINGS_MAX),
        (52, STOP_CHARACTERS_MAX),
        (53, ApiOptions().prompts_max),
        (54, MESSAGES_MAX),
        (54, TEMPLATE_ARGUMENTS_MAX),
        (54, ApiOptions().template_ms),
        (54, ApiOptions().template_characters_max),
        (54, REPEATED_MAX),
        (55, COMPLETION_TOKENS),
        (55, CHAT_TOKENS),
        (62, ApiOptions().unread_bytes_max),
    ]:
        assert re.search(rf"\b{number}\b", clause(clause_number))
