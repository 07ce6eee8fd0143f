"""Scenarios as text: blocks of commands, a line `----`, and the trace that they leave.

A block ends at an empty line. Lines that begin with `#` are remarks; a block of remarks alone has
no separator.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from errors import ConfigError

SEPARATOR: Final = "----"


@dataclass(frozen=True)
class Block:
    """Lines before the separator (commands and remarks), and those after it."""

    commands: tuple[str, ...]
    trace: tuple[str, ...] = ()

    @property
    def is_remark(self) -> bool:
        return all(line.startswith("#") for line in self.commands)


@dataclass(frozen=True)
class Command:
    """One command line: `name key=value ...`."""

    name: str
    settings: dict[str, str]


def parse_scenario(text: str) -> list[Block]:
    """The blocks of a scenario. Raises ConfigError for a block that has no separator."""
    blocks = []
    for part in text.strip("\n").split("\n\n"):
        lines = tuple(part.strip("\n").split("\n"))
        at = lines.index(SEPARATOR) if SEPARATOR in lines else len(lines)
        block = Block(lines[:at], lines[at + 1 :])
        if at == len(lines) and not block.is_remark:
            raise ConfigError.single("block", lines[0], f"needs a line {SEPARATOR}")
        blocks.append(block)
    return blocks


def spell_scenario(blocks: Iterable[Block]) -> str:
    """The text of these blocks."""
    parts = [
        block.commands if block.is_remark else (*block.commands, SEPARATOR, *block.trace)
        for block in blocks
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def parse_command(line: str, keys: Iterable[str]) -> Command:
    """A command line whose settings may have these keys. Raises ConfigError."""
    name, *pairs = line.split()
    settings: dict[str, str] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or key in settings or key not in keys:
            rule = f"must be one of {', '.join(sorted(keys))}, once, with =VALUE"
            raise ConfigError.single(name, pair, rule)
        settings[key] = value
    return Command(name, settings)
