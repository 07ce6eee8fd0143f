"""The committed walkthrough is the one that the committed evidence gives."""

from __future__ import annotations

from pathlib import Path

from tools.docs.walkthrough import page

CASE = "clean-r4-b2-t7-s1-rank"


def test_walkthrough_is_current() -> None:
    folder = Path("testdata/evidence/cases") / CASE
    made = page(CASE, (folder / "ledger.jsonl").read_bytes(), (folder / "tape.bin").read_bytes())
    assert Path("docs/walkthrough.md").read_text(encoding="utf-8") == made
    assert made.count("\n**") == 19
