"""What a check reports, and which files it looks at."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

# Written by the build, so not held to the rules for what people write.
GENERATED = ("_pb2.py", "_pb2.pyi")


@dataclass(frozen=True, order=True)
class Finding:
    """One broken rule. `line` counts from 1; 0 means the whole file."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: [{self.rule}] {self.text}"


def files(root: Path, *suffixes: str) -> list[str]:
    """The written files below root with one of these endings: relative paths, sorted."""
    found = (str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    written = (path for path in found if not path.endswith(GENERATED))
    return sorted(path for path in written if path.endswith(suffixes))


def require_none(findings: Iterable[Finding]) -> None:
    """Fails with all findings, one line each, if there is one."""
    lines = [str(finding) for finding in sorted(set(findings))]
    if lines:
        raise AssertionError("\n".join(["these break a rule:", *lines]))
