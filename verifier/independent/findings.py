"""Findings: what a check reports, collected within a bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

# Per code and case. A broken file repeats one fault on every line; the first few say enough.
MAX_FINDINGS_PER_CASE = 8
MAX_MESSAGE_CHARS = 400


@dataclass(frozen=True)
class Finding:
    """One failed check: a code of evidence.md's table, the case or None, and one sentence."""

    code: str
    case: str | None
    message: str


class Findings:
    """Collects findings, beyond a bound per code and case only their number."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str | None], list[Finding]] = {}
        self._left_out: dict[tuple[str, str | None], int] = {}
        self.checked: dict[str, int] = {}

    def add(self, code: str, case: str | None, message: str) -> None:
        """Records one finding; the message is made printable ASCII and cut to a bound."""
        kept = self._kept.setdefault((code, case), [])
        if len(kept) < MAX_FINDINGS_PER_CASE:
            kept.append(Finding(code, case, printable(message)))
        else:
            self._left_out[code, case] = self._left_out.get((code, case), 0) + 1

    def count(self, code: str, number: int = 1) -> None:
        """Adds to the number of things that the check `code` has looked at."""
        self.checked[code] = self.checked.get(code, 0) + number

    def __iter__(self) -> Iterator[Finding]:
        for key, kept in self._kept.items():
            yield from kept
            if key in self._left_out:
                yield Finding(*key, f"and {self._left_out[key]} more of this code")

    def __bool__(self) -> bool:
        return bool(self._kept)


@dataclass(frozen=True)
class Log:
    """What one check is given to report with: findings of its code only."""

    findings: Findings
    code: str

    def found(self, message: str, case: str | None = None) -> None:
        self.findings.add(self.code, case, message)

    def count(self, number: int = 1) -> None:
        self.findings.count(self.code, number)


def printable(text: str) -> str:
    """`text` as printable ASCII without line breaks, at most MAX_MESSAGE_CHARS long."""
    cut = text[: MAX_MESSAGE_CHARS + 1]
    safe = "".join(char if " " <= char <= "~" else ascii(char)[1:-1] for char in cut)
    return safe if len(safe) <= MAX_MESSAGE_CHARS else safe[:MAX_MESSAGE_CHARS] + "..."


def shown(value: object, limit: int = 60) -> str:
    """A short form of an untrusted value for a message, without building a long one first."""
    if isinstance(value, str):
        return repr(value if len(value) <= limit else value[:limit] + "...")
    if isinstance(value, bytes):
        return value[:limit].hex()
    if isinstance(value, dict | list):
        return f"{type(value).__name__} of {len(value)}" if len(value) > 6 else repr(value)[:limit]
    return repr(value)[:limit]
