"""Comparison of two builds: same, different, missing, nothing at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.pack import compare_actions


def log(**digests: str) -> str:
    """An execution log with one action for each output."""
    return "\n".join(
        json.dumps({"actualOutputs": [{"path": path, "digest": {"hash": digest}}]}, indent=1)
        for path, digest in digests.items()
    )


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (log(a="1", b="2"), log(b="2", a="1"), 0),
        (log(a="1"), log(a="2"), 1),
        (log(a="1", b="2"), log(a="1"), 1),
        (log(a="1"), log(a="1", b="2"), 1),
        ("", "", 1),
        ('{"command": []}\n', '{"command": []}\n', 1),
    ],
    ids=["same", "different", "missing", "extra", "nothing ran", "no outputs"],
)
def test_exit_code(tmp_path: Path, first: str, second: str, wanted: int) -> None:
    names = []
    for name, text in (("first", first), ("second", second)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        names.append(str(tmp_path / name))
    assert compare_actions.main(names) == wanted
