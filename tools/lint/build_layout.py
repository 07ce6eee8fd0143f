"""Checks how a BUILD or .bzl file is laid out: whitespace, quotes, brackets.

The rules are those of the usual formatter of BUILD files, which is a program that the build can't
pin (docs/adr/0004-checks.md); what passes here passes there.
"""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field

from tools.lint.finding import Finding

INDENT = 4
PAIRS = {"(": ")", "[": "]", "{": "}"}
IGNORED = (tokenize.NL, tokenize.COMMENT, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT)


@dataclass
class Bracket:
    """An open bracket: its token, the indent of its line, and the first token of each element."""

    token: tokenize.TokenInfo
    indent: int
    elements: list[tokenize.TokenInfo] = field(default_factory=list)
    expects_element: bool = True
    is_comprehension: bool = False

    @property
    def line(self) -> int:
        """The line it is opened on."""
        return self.token.start[0]


def _whitespace(path: str, source: str) -> Iterator[Finding]:
    lines = source.split("\n")
    if lines[-1] != "" or (len(lines) > 1 and lines[-2] == ""):
        yield Finding(path, len(lines), "build-whitespace", "the file ends in one line feed")
    for number, line in enumerate(lines, start=1):
        if line != line.rstrip():
            yield Finding(path, number, "build-whitespace", "trailing whitespace")
        if "\t" in line:
            yield Finding(path, number, "build-whitespace", "tab")
        if number > 1 and not line and not lines[number - 2] and number < len(lines):
            yield Finding(path, number, "build-whitespace", "two blank lines")


def _close(
    path: str, bracket: Bracket, token: tokenize.TokenInfo, previous: str
) -> Iterator[Finding]:
    """What is wrong with a bracket that this token closes."""
    if token.start[0] == bracket.line:
        return
    first = bracket.elements[0] if bracket.elements else token
    if first.start[0] == bracket.line:
        # Only what ends the last element may break the line, as in exports_files([...]).
        if any(element.start[0] != bracket.line for element in bracket.elements):
            yield Finding(path, first.start[0], "build-brackets", "the first element starts a line")
        return
    for element in bracket.elements:
        if element.line[: element.start[1]].strip():
            yield Finding(path, element.start[0], "build-brackets", "one element on each line")
        elif element.start[1] != bracket.indent + INDENT:
            text = f"indented by {bracket.indent + INDENT}, not {element.start[1]}"
            yield Finding(path, element.start[0], "build-indent", text)
    if token.line[: token.start[1]].strip():
        yield Finding(path, token.start[0], "build-brackets", "the closing bracket starts a line")
    elif token.start[1] != bracket.indent:
        text = f"closing bracket indented by {bracket.indent}, not {token.start[1]}"
        yield Finding(path, token.start[0], "build-indent", text)
    starred = bracket.elements and bracket.elements[-1].string in ("*", "**")
    if previous != "," and not starred and not bracket.is_comprehension and bracket.elements:
        yield Finding(path, token.start[0], "build-brackets", "a comma after the last element")


def _brackets(path: str, source: str) -> Iterator[Finding]:
    stack: list[Bracket] = []
    previous = ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in IGNORED:
            continue
        if token.type == tokenize.STRING and token.string.lstrip("rb").startswith("'"):
            yield Finding(path, token.start[0], "build-quotes", "double quotes")
        if stack and token.string in PAIRS.values():
            yield from _close(path, stack.pop(), token, previous)
        elif stack:
            top = stack[-1]
            if top.expects_element and token.string != ",":
                top.elements.append(token)
                top.expects_element = False
            if token.string == ",":
                top.expects_element = True
            top.is_comprehension |= token.string == "for"
        if token.string in PAIRS:
            indent = len(token.line) - len(token.line.lstrip())
            stack.append(Bracket(token, indent))
        previous = token.string


def check(path: str, source: str) -> Iterator[Finding]:
    """Everything in this BUILD or .bzl file that is laid out differently."""
    yield from _whitespace(path, source)
    yield from _brackets(path, source)
