"""The shared test vectors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

_DIRECTORY = Path(__file__).absolute().parents[2] / "testdata" / "vectors"


def load(name: str) -> dict[str, Any]:
    """A whole vector file, by its stem."""
    content: dict[str, Any] = json.loads((_DIRECTORY / f"{name}.json").read_bytes())
    return content


def by_id(name: str, **wanted: Any) -> dict[str, dict[str, Any]]:
    """The vectors of a file by id, those only that have these values."""
    return {
        each["id"]: each
        for each in load(name)["vectors"]
        if all(each.get(key) == value for key, value in wanted.items())
    }
