"""The vector files, for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def load(name: str) -> dict[str, Any]:
    """The whole file `name`, tables included."""
    content: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_bytes())
    return content


def vectors(name: str) -> list[dict[str, Any]]:
    """The vectors of the file `name`."""
    found: list[dict[str, Any]] = load(name)["vectors"]
    return found
