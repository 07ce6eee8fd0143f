"""What a check reports: bounded, printable findings, each with a code of docs/spec/evidence.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

# Per code and case: a broken file repeats one fault on every line, and the first few say enough.
FINDINGS_PER_CASE_MAX: Final = 5
MESSAGE_CHARACTERS_MAX: Final = 300
VALUE_CHARACTERS_MAX: Final = 80


@dataclass(frozen=True)
class Finding:
    """One broken rule. case_id: None for the package as a whole. message: one line of ASCII."""

    code: str
    case_id: str | None
    message: str

    def sentence(self) -> str:
        where = "" if self.case_id is None else f" {self.case_id}"
        return f"{self.code}{where}: {self.message}"


class Findings:
    """Collects findings; beyond a bound per code and case it only counts."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str | None], list[Finding]] = {}
        self._left_out: dict[tuple[str, str | None], int] = {}

    def add(self, code: str, case_id: str | None, message: str) -> None:
        key = (code, case_id)
        kept = self._kept.setdefault(key, [])
        if len(kept) < FINDINGS_PER_CASE_MAX:
            kept.append(Finding(code, case_id, printable(message)))
        else:
            self._left_out[key] = self._left_out.get(key, 0) + 1

    def __iter__(self) -> Iterator[Finding]:
        for key, kept in self._kept.items():
            yield from kept
            if key in self._left_out:
                yield Finding(*key, f"{self._left_out[key]} more findings like these")


@dataclass(frozen=True)
class Log:
    """What a check of one code reports to, about one case or the package."""

    findings: Findings
    code: str
    case_id: str | None = None

    def found(self, message: str) -> None:
        self.findings.add(self.code, self.case_id, message)

    def compare(self, what: str, got: object, wanted: object) -> bool:
        """Report `what` unless both are the same value of the same type; whether they are."""
        same = type(got) is type(wanted) and got == wanted
        if not same:
            self.found(f"{what} is {shown(got)}, must be {shown(wanted)}")
        return same

    def of_case(self, case_id: str) -> Log:
        """The same check, about this case."""
        return Log(self.findings, self.code, case_id)


def printable(text: str) -> str:
    """One bounded line of ASCII, whatever a hostile package holds."""
    cut = text[:MESSAGE_CHARACTERS_MAX]
    line = "".join(c if " " <= c <= "~" else ascii(c)[1:-1] for c in cut)
    return line if len(text) <= MESSAGE_CHARACTERS_MAX else f"{line}..."


def shown(value: object) -> str:
    """An outside value for a message, without making a long text of it first."""
    if isinstance(value, dict | list) and len(value) > VALUE_CHARACTERS_MAX:
        return f"{type(value).__name__} of {len(value)}"
    if isinstance(value, str | bytes):
        value = value[: VALUE_CHARACTERS_MAX + 1]
    text = repr(value)
    if len(text) <= VALUE_CHARACTERS_MAX:
        return text
    return f"{text[:VALUE_CHARACTERS_MAX]}..."
