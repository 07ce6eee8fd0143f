from __future__ import annotations

import re

import pytest

from manifest.value_rules import (
    SHOWN_CHARACTERS_MAX,
    EachIn,
    OneOf,
    Pattern,
    Range,
    Rule,
    Switch,
    Value,
    parse_integer,
    shown,
)

ACCEPTED: list[tuple[Rule, Value]] = [
    (Range(1, 16), 1),
    (Range(1, 16), 16),
    (OneOf(("rank", "pairwise")), "pairwise"),
    (Pattern(re.compile("[a-f]+"), "letters"), "cafe"),
    (Switch(), True),
    (EachIn(Range(0, 3), 2), ()),
    (EachIn(Range(0, 3), 2), (3, 0)),
]

REFUSED: list[tuple[Rule, Value]] = [
    (Range(1, 16), 0),
    (Range(1, 16), 17),
    (Range(1, 16), -1),
    (Range(1, 16), "4"),
    (OneOf(("rank", "pairwise")), "pair"),
    (OneOf(("rank", "pairwise")), "Rank"),
    (Pattern(re.compile("[a-f]+"), "letters"), "cafe\n"),
    (Pattern(re.compile("[a-f]+"), "letters"), ""),
    (Pattern(re.compile("[a-f]+"), "letters"), 5),
    (Switch(), 1),
    (EachIn(Range(0, 3), 2), (0, 1, 2)),
    (EachIn(Range(0, 3), 2), (4,)),
    (EachIn(Range(0, 3), 2), 1),
]


@pytest.mark.parametrize(("rule", "value"), ACCEPTED)
def test_values_within_the_rule(rule: Rule, value: Value) -> None:
    assert rule.violation(value) is None


@pytest.mark.parametrize(("rule", "value"), REFUSED)
def test_values_outside_the_rule(rule: Rule, value: Value) -> None:
    assert rule.violation(value)


@pytest.mark.parametrize(
    ("text", "value"), [("0", 0), ("7", 7), ("-1", -1), ("18446744073709551616", 1 << 64)]
)
def test_plain_decimal_integers(text: str, value: int) -> None:
    assert parse_integer(text) == value


OTHER_SPELLINGS = [
    "",
    " 1",
    "1 ",
    "+1",
    "--1",
    "1e3",
    "1.0",
    "0x10",
    "010",
    "-0x1",
    "1_000",
    "true",
]
OTHER_SPELLINGS += ["true", "\u0661", "\uff11", "9" * 1001, "9" * 100_000]


@pytest.mark.parametrize("text", OTHER_SPELLINGS)
def test_other_spellings_are_no_integers(text: str) -> None:
    assert parse_integer(text) is None


@pytest.mark.parametrize("value", ["\x1b[31m", "\ud800", "\u202e", "x" * 1000, "", (1, 2), True])
def test_shown_values_are_printable_ascii_and_short(value: object) -> None:
    text = shown(value)
    assert text
    assert text.isascii()
    assert text.isprintable()
    assert len(text) <= 10 * SHOWN_CHARACTERS_MAX
