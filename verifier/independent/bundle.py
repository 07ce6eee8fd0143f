"""The package as the checks see it: JSON decoded once, and what could not be decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import canonical
import schema
from findings import shown
from frames import MAX_RECORDS
from matrix import Case
from package import MAX_FILES, Package, Unreadable


@dataclass(frozen=True)
class Measured:
    """What a case's files contain, kept for the checks over all cases."""

    ledger_entries: int
    tape_bytes: int
    payload_bytes: int
    output: bytes | None


@dataclass
class Bundle:
    """The whole package, and the matrix that it must cover.

    `listed` are the records of `cases.jsonl` in file order, of whatever form; `cases` are those
    among them with exactly the right keys and types. `manifest` has only the keys whose values have
    the right form; `summary` is {} where it is no canonical object. `problems` are the faults of
    form in these files.
    """

    package: Package
    matrix: Mapping[str, Case]
    source: Path | None = None
    manifest: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] = field(default_factory=dict)
    listed: list[dict[str, Any]] = field(default_factory=list)
    cases: list[dict[str, Any]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    measured: dict[str, Measured] = field(default_factory=dict)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The world sizes of the matrix."""
        return tuple(sorted({case.ranks for case in self.matrix.values()}))

    def by_name(self) -> dict[str, dict[str, Any]]:
        """The records of the right form by name; cases of the matrix only, the first of each."""
        named: dict[str, dict[str, Any]] = {}
        for each in self.cases:
            if each["case"] in self.matrix:
                named.setdefault(each["case"], each)
        return named

    def claims(self) -> dict[str, dict[str, Any]]:
        """As `by_name`, of whatever form: what the package says of each case, unchecked."""
        named: dict[str, dict[str, Any]] = {}
        for each in self.listed:
            name = each.get("case")
            if isinstance(name, str) and name in self.matrix:
                named.setdefault(name, each)
        return named


def load(package: Package, matrix: Mapping[str, Case], source: Path | None) -> Bundle:
    """Scans the package and decodes manifest, cases and summary; their faults never raise."""
    package.scan()
    bundle = Bundle(package, matrix, source)
    manifest = _object(bundle, "manifest.json")
    if manifest:
        rules = schema.manifest_rules(len(matrix), bundle.ranks)
        bundle.problems.extend(f"manifest.json: {each}" for each in schema.faults(manifest, rules))
        bundle.manifest = {
            key: value
            for key, value in manifest.items()
            if key in rules and rules[key](value) is None
        }
    bundle.summary = _object(bundle, "summary.json")
    _load_cases(bundle)
    return bundle


def _object(bundle: Bundle, path: str) -> dict[str, Any]:
    """E1: one canonical object and one line feed; {} with a problem noted where it is not."""
    try:
        data = bundle.package.read(path)
        if not data.endswith(b"\n"):
            raise ValueError("does not end with a line feed")
        return canonical.decode_object(data[:-1])
    except (Unreadable, ValueError) as error:
        bundle.problems.append(f"{path}: {error}")
        return {}


def _load_cases(bundle: Bundle) -> None:
    try:
        lines = split_lines(bundle.package.read("cases.jsonl"), MAX_FILES)
    except (Unreadable, ValueError) as error:
        bundle.problems.append(f"cases.jsonl: {error}")
        return
    for number, line in enumerate(lines, 1):
        try:
            record = canonical.decode_object(line)
        except canonical.CanonicalError as error:
            bundle.problems.append(f"cases.jsonl line {number}: {error}")
            continue
        bundle.listed.append(record)
        problems = list(schema.faults(record, schema.case_rules(record)))
        bundle.problems.extend(f"cases.jsonl line {number}: {each}" for each in problems)
        if not problems:
            bundle.cases.append(record)


def split_lines(data: bytes, limit: int) -> list[bytes]:
    """The lines of a `.jsonl` file without their line feeds.

    Raises:
        ValueError: no line feed at the end, or more than `limit` lines.
    """
    if data and not data.endswith(b"\n"):
        raise ValueError("does not end with a line feed")
    if data.count(b"\n") > limit:
        raise ValueError(f"has more than {limit} lines")
    return data.split(b"\n")[:-1]


def ledger_lines(data: bytes) -> tuple[list[dict[str, Any] | None], list[str]]:
    """The entries of a ledger, None for a line of the wrong form, and what was wrong.

    Raises:
        ValueError: as `split_lines`.
    """
    entries: list[dict[str, Any] | None] = []
    problems: list[str] = []
    for number, line in enumerate(split_lines(data, MAX_RECORDS), 1):
        try:
            entry = canonical.decode_object(line)
            faults = list(schema.faults(entry, schema.LEDGER_RULES))
        except canonical.CanonicalError as error:
            faults = [str(error)]
        problems.extend(f"ledger.jsonl line {number}: {fault}" for fault in faults)
        entries.append(None if faults else entry)
    return entries, problems


def difference(what: str, got: Any, wanted: Any) -> str | None:
    """A sentence where a claimed value is not the recomputed one (type included), else None."""
    if canonical.encode(got) == canonical.encode(wanted):
        return None
    return f"{what} is {shown(got)}, recomputed {shown(wanted)}"
