"""The committed pictures are small, whole, and of the page as it is now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.browser.screenshots import BYTES_MAX, NAMES, OUT, PAGE, RECORD, digest, sources

HOW = "the page has changed since the pictures were made: run tools/browser/screenshots.py again"


def recorded() -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((OUT / RECORD).read_text("utf-8"))
    return found


def test_the_pictures_are_of_this_page() -> None:
    assert recorded()["page"] == sources(PAGE), HOW


def test_a_changed_page_is_noticed(tmp_path: Path) -> None:
    for path in PAGE.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    assert recorded()["page"] == sources(tmp_path)
    with (tmp_path / "page.css").open("a", encoding="utf-8") as file:
        file.write("/* changed */\n")
    assert recorded()["page"] != sources(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_each_picture_is_the_one_that_was_recorded(name: str) -> None:
    path = OUT / name
    assert digest(path) == recorded()["pictures"][name]
    assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert path.stat().st_size < BYTES_MAX
