"""Text for a terminal: columns, numbers and, where it is wanted, colour. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

WIDTH: Final = 100


class Tone(Enum):
    """What a piece of text is; the value is its ANSI graphic rendition."""

    GOOD = "32"
    BAD = "1;31"
    HEADING = "1"
    QUIET = "2"


@dataclass(frozen=True)
class Style:
    """Whether text is coloured."""

    colour: bool = False

    def paint(self, text: str, tone: Tone) -> str:
        return f"\x1b[{tone.value}m{text}\x1b[0m" if self.colour else text


def style_for(is_terminal: bool, environment: Mapping[str, str]) -> Style:
    """Colour on a terminal that has it, unless NO_COLOR is set to anything but nothing."""
    dumb = environment.get("TERM", "") in ("", "dumb")
    return Style(is_terminal and not dumb and not environment.get("NO_COLOR"))


def columns(rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Rows as lines with equal columns, two spaces apart. align: one of < and > per column."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def count(value: int) -> str:
    """An integer with thousands separated: 29,184."""
    return f"{value:,}"


def printable(text: str) -> str:
    """Text from outside, without anything that a terminal would act on; line breaks stay."""
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)
