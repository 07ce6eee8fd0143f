"""The package's JSON, decoded strictly; what could not be is noted and never raised.

Checks work on what has the right form; a record or key that has not is a `package.schema` finding
and is left out here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from errors import ProtocolError
from evidence.package import CASES, MANIFEST, SUMMARY
from verifier.package import schema
from verifier.package.files import PackageFiles, UnreadableError
from wire.canonical import decode_canonical

# A valid package has some 6,000 values in its largest file; a hostile one of 4 MiB could hold a
# million, each a hundred times its text in memory.
VALUES_MAX: Final = 50_000
LINES_MAX: Final = 2_000

Record = Mapping[str, Any]


@dataclass
class Documents:
    """manifest: its keys of the right form. summary: None unless of the right form.

    listed: every line of cases.jsonl that is an object, in order. records: those of the right form.
    """

    manifest: dict[str, Any] = field(default_factory=dict)
    summary: dict[str, Any] | None = None
    listed: list[Record] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @cached_property
    def by_case(self) -> dict[str, Record]:
        """The first record of each case which has the right form."""
        return {record["case"]: record for record in reversed(self.records)}


def read_documents(files: PackageFiles) -> Documents:
    """Manifest, cases and summary of a package."""
    documents = Documents()
    manifest = _object(documents, files, MANIFEST)
    if manifest is not None:
        rules = schema.MANIFEST_RULES
        _note(documents, MANIFEST, manifest, rules)
        documents.manifest = {
            key: value
            for key, value in manifest.items()
            if key in rules and rules[key](value) is None
        }
    summary = _object(documents, files, SUMMARY)
    if summary is not None and _note(documents, SUMMARY, summary, schema.SUMMARY_RULES):
        documents.summary = summary
    _read_cases(documents, files)
    return documents


def _note(
    documents: Documents, where: str, value: Record, rules: Mapping[str, schema.Rule]
) -> bool:
    """Note what is wrong with an object's form; whether nothing is."""
    broken = [f"{where}: {problem}" for problem in schema.broken_rules(value, rules)]
    documents.problems += broken
    return not broken


def _object(documents: Documents, files: PackageFiles, path: str) -> dict[str, Any] | None:
    try:
        data = files.read(path)
        if data[-1:] != b"\n":
            raise ValueError("has no line feed at its end")
        return decode_object(data[:-1])
    except (UnreadableError, ValueError) as failure:
        documents.problems.append(f"{path}: {failure}")
        return None


def _read_cases(documents: Documents, files: PackageFiles) -> None:
    try:
        lines = split_lines(files.read(CASES), LINES_MAX)
    except (UnreadableError, ValueError) as failure:
        documents.problems.append(f"{CASES}: {failure}")
        return
    for number, line in enumerate(lines, 1):
        where = f"{CASES} line {number}"
        try:
            record = decode_object(line)
        except ValueError as failure:
            documents.problems.append(f"{where}: {failure}")
            continue
        documents.listed.append(record)
        if _note(documents, where, record, schema.case_rules(record)):
            documents.records.append(record)


def decode_object(data: bytes) -> dict[str, Any]:
    """The object that canonical JSON spells. Raises ValueError with what is wrong."""
    if sum(map(data.count, (b",", b"[", b"{"))) > VALUES_MAX:
        raise ValueError(f"may hold more than {VALUES_MAX} values")
    try:
        return decode_canonical(data)
    except ProtocolError as failure:
        raise ValueError(f"{failure.reason}: {failure.message}") from None


def split_lines(data: bytes, lines_max: int) -> list[bytes]:
    """The lines of a .jsonl file, without line feeds. Raises ValueError with what is wrong."""
    if data.count(b"\n") > lines_max:
        raise ValueError(f"has more than {lines_max} lines")
    if data[-1:] not in (b"", b"\n"):
        raise ValueError("has no line feed at its end")
    return data.split(b"\n")[:-1]
