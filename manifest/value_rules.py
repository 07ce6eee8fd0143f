"""What one field of a manifest may hold: a range, a choice, a pattern or a list.

A rule judges a value of the right type and explains itself in words. It must not know which field
it is for, nor where the value came from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

Value = int | str | bool | tuple[int, ...]

SHOWN_CHARACTERS_MAX: Final = 80
# Far more digits than any range allows, and few enough to convert in no time.
_INTEGER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,999})", re.ASCII)


class FieldType(Enum):
    """The types of fields; the value is how a person calls it."""

    INTEGER = "a decimal integer"
    TEXT = "a text in quotes"
    SWITCH = "true or false"
    INTEGERS = "a list of decimal integers"


@dataclass(frozen=True)
class Range:
    """An integer from minimum to maximum, both included."""

    minimum: int
    maximum: int

    def describe(self) -> str:
        return f"{self.minimum} to {self.maximum}"

    def violation(self, value: Value) -> str | None:
        if isinstance(value, int) and self.minimum <= value <= self.maximum:
            return None
        return f"must be {self.describe()}"


@dataclass(frozen=True)
class OneOf:
    """One of a few words."""

    words: tuple[str, ...]

    def describe(self) -> str:
        return ", ".join(self.words)

    def violation(self, value: Value) -> str | None:
        return None if value in self.words else f"must be one of {self.describe()}"


@dataclass(frozen=True)
class Pattern:
    """A text that matches a regular expression as a whole; `words` says so for a person."""

    expression: re.Pattern[str]
    words: str

    def describe(self) -> str:
        return self.words

    def violation(self, value: Value) -> str | None:
        if isinstance(value, str) and self.expression.fullmatch(value):
            return None
        return f"must be {self.words}"


@dataclass(frozen=True)
class Switch:
    """True or false: nothing to violate."""

    def describe(self) -> str:
        return "true, false"

    def violation(self, value: Value) -> str | None:
        return None if isinstance(value, bool) else "must be true or false"


@dataclass(frozen=True)
class EachIn:
    """A list of at most `count_max` integers, each within one range."""

    item: Range
    count_max: int

    def describe(self) -> str:
        return f"at most {self.count_max} values, each {self.item.describe()}"

    def violation(self, value: Value) -> str | None:
        if isinstance(value, tuple) and len(value) <= self.count_max:
            refused = [item for item in value if self.item.violation(item)]
            return f"must hold only {self.item.describe()}" if refused else None
        return f"must hold {self.describe()}"


Rule = Range | OneOf | Pattern | Switch | EachIn


def parse_integer(text: str) -> int | None:
    """The integer that `text` spells in plain decimal digits; None for any other spelling."""
    return int(text) if _INTEGER.fullmatch(text) else None


def shown(value: object) -> str:
    """A value as an error message shows it: printable ASCII, bounded in length."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return shown(",".join(str(item) for item in value))
    text = str(value)
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = text[:SHOWN_CHARACTERS_MAX] + "..."
    printable = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    return printable.encode("ascii", "backslashreplace").decode("ascii") or '""'
