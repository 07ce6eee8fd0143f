"""Checks that a text names no machine, no package registry and no tool that wrote it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.lint.finding import Finding


def _any_of(*words: tuple[str, ...]) -> str:
    """An alternation. Words are given in parts, so that this file does not contain them."""
    return "|".join("".join(parts).replace(".", r"\.") for parts in words)


HOSTS = _any_of(
    ("pypi", ".org"),
    ("python", "hosted.org"),
    ("npm", "js.org"),
    ("npm", "js.com"),
    ("deb.deb", "ian.org"),
    ("crates", ".io"),
)
AUTHORS = _any_of(("cla", "ude"), ("anth", "ropic"), ("chat", "gpt"), ("co", "pilot"))
# A home or work folder at the start of an absolute path.
FOLDERS = _any_of(("ro", "ot"), ("wo", "rk"), ("ho", r"me/\w+"), ("Us", r"ers/\w+"))

RULES = {
    "registry": (re.compile(HOSTS, re.IGNORECASE), "names a package registry's host"),
    "author": (re.compile(rf"\b(?:{AUTHORS})\b", re.IGNORECASE), "names a writing tool"),
    "machine-path": (
        re.compile(rf"(?<![\w.~}}*-])/(?:{FOLDERS})\b"),
        "names a folder of one machine",
    ),
}


def check(path: str, text: str) -> Iterator[Finding]:
    """Every line of this text that names what it should not."""
    for number, line in enumerate(text.splitlines(), start=1):
        for rule, (pattern, problem) in RULES.items():
            if pattern.search(line):
                yield Finding(path, number, rule, problem)
