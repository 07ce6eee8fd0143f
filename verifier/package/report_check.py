"""`report.value`: the two tables of report.md (docs/spec/evidence.md E9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from evidence.report import CASES_HEADING, NUMBERS_HEADING, case_rows, number_rows
from verifier.package.documents import Documents
from verifier.package.findings import shown

LINES_MAX: Final = 10_000


def report_problems(data: bytes, documents: Documents) -> Iterator[str]:
    """What is wrong with the report, held against summary.json and cases.jsonl as they stand."""
    if data.count(b"\n") > LINES_MAX:
        yield f"has more than {LINES_MAX} lines"
        return
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as failure:
        yield f"byte {failure.start} is not UTF-8"
        return
    if documents.summary is not None:
        yield from _section_problems(lines, NUMBERS_HEADING, number_rows(documents.summary))
    yield from _section_problems(lines, CASES_HEADING, case_rows(documents.records))


def _section_problems(lines: Sequence[str], heading: str, wanted: list[str]) -> Iterator[str]:
    starts = [number for number, line in enumerate(lines) if line == heading]
    if len(starts) != 1:
        yield f"the heading {heading!r} stands {len(starts)} times, must stand once"
        return
    body: list[str] = []
    for line in lines[starts[0] + 1 :]:
        if line.startswith("## "):
            break
        body.append(line)
    table = "\n".join(body).strip("\n").split("\n")
    for number, (row, want) in enumerate(zip_longest(table, wanted), 1):
        if row != want:
            yield f"{heading}, row {number} is {shown(row)}, must be {shown(want)}"
