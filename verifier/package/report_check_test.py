"""The report's tables are exact; its prose is free."""

from __future__ import annotations

import json

import pytest

from evidence.made_up import made_up_records
from evidence.package import CASES, SUMMARY
from evidence.report import report
from evidence.summary import summarize
from verifier.package.documents import read_documents
from verifier.package.files import Memory, PackageFiles
from verifier.package.report_check import report_problems

RECORDS = made_up_records()
TOTALS = summarize(RECORDS, 1, 2)
REPORT = report(TOTALS, RECORDS)


def line(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


DOCUMENTS = read_documents(
    PackageFiles(Memory({CASES: b"".join(map(line, RECORDS)), SUMMARY: line(TOTALS)}))
)


def problems(text: str) -> list[str]:
    return list(report_problems(text.encode(), DOCUMENTS))


def test_our_own_report() -> None:
    assert problems(REPORT) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# Evidence", "# Evidence \u2713"),
        ("## Isolation", "## Separation"),
        ("## Cases\n\n", "## Cases\n\n\n"),
        ("## Numbers\n", "## Another section\n\n| a table |\n\n## Numbers\n"),
    ],
)
def test_what_is_free(old: str, new: str) -> None:
    assert problems(REPORT.replace(old, new, 1)) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| cases.clean | 192 |", "| cases.clean | 193 |"),
        ("| cases.clean | 192 |\n", ""),
        ("| cases.clean | 192 |\n", "| cases.clean | 192 |\n\n"),
        ("| cases.clean | 192 |\n", "| cases.clean | 192 |\nA remark.\n"),
        ("| what | value |", "| What | Value |"),
        ("## Numbers\n", "## Numbers \n"),
        ("## Numbers\n", "text\n## Numbers\n\n## Numbers\n"),
        ("## Cases\n", "## Case\n"),
        ("| - | - |", "|  |  |"),
    ],
)
def test_what_is_found(old: str, new: str) -> None:
    assert old in REPORT
    assert problems(REPORT.replace(old, new, 1))
