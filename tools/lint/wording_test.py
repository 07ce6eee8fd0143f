"""Wording: each rule refuses its words and leaves similar ones alone. Words come in parts here."""

from __future__ import annotations

import pytest

from tools.lint import wording

REFUSED = {
    "a home": ("see /", "root/.cache"),
    "a work folder": ("cd /", "work/main"),
    "a user": ("/", "home/someone/x"),
    "a user elsewhere": ("/", "Users/someone"),
    "the index of wheels": ("https://pypi", ".org/simple"),
    "the files of wheels": ("files.python", "hosted.org"),
    "another registry": ("registry.npm", "js.org"),
    "a mirror": ("http://deb.deb", "ian.org/debian"),
    "a writing tool": ("written by Cla", "ude"),
}

ACCEPTED = [
    "the repository root / its work",
    "https://example.com/work/x",
    "./root/x and a/work/b",
    "PyPI and the package registry",
    "/tmp/rankproof and /usr/bin/python3",
    "networking",
]


@pytest.mark.parametrize("parts", REFUSED.values(), ids=REFUSED)
def test_refused(parts: tuple[str, str]) -> None:
    (finding,) = wording.check("docs/x.md", "first\n" + "".join(parts))
    assert finding.line == 2


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted(text: str) -> None:
    assert list(wording.check("docs/x.md", text)) == []
