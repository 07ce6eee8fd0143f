"""The tables of `report.md` (evidence.md E9)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import Any

import summary
from findings import shown

NUMBERS_HEAD = ("| what | value |", "|---|---|")
CASES_HEAD = (
    "| case | outcome | code | rank | max abs error | relative L2 | payload bytes |",
    "|---|---|---|---|---|---|---|",
)
MAX_LINES = 20_000


class ReportError(ValueError):
    """A report whose sections can't be found."""


def problems(
    data: bytes, totals: Mapping[str, Any], records: Iterable[Mapping[str, Any]]
) -> Iterator[str]:
    """What is wrong with the report's two tables, given recomputed summary and records."""
    try:
        lines = _lines(data)
        yield from _compare("Numbers", _section(lines, "## Numbers"), _numbers(totals))
        yield from _compare("Cases", _section(lines, "## Cases"), case_rows(records))
    except ReportError as error:
        yield str(error)


def _lines(data: bytes) -> list[str]:
    if data.count(b"\n") > MAX_LINES:
        raise ReportError(f"more than {MAX_LINES} lines")
    try:
        return data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ReportError(f"byte {error.start} is not UTF-8") from None


def _section(lines: list[str], title: str) -> list[str]:
    """The lines below a heading, which must stand exactly once, without blank ends."""
    starts = [number for number, line in enumerate(lines) if line == title]
    if len(starts) != 1:
        raise ReportError(f"section {title!r} stands {len(starts)} times")
    body = lines[starts[0] + 1 :]
    end = next((at for at, line in enumerate(body) if line.startswith("## ")), len(body))
    return "\n".join(body[:end]).strip("\n").split("\n")


def _numbers(totals: Mapping[str, Any]) -> list[str]:
    rows = [f"| {path} | {value} |" for path, value in summary.leaves(totals)]
    return [*NUMBERS_HEAD, *rows]


def case_rows(records: Iterable[Mapping[str, Any]]) -> list[str]:
    rows = []
    for each in records:
        error = each["error"] or {}
        cells = (
            each["case"],
            each["outcome"],
            error.get("code", "-"),
            error.get("rank", "-"),
            each["max_abs_error"] or "-",
            each["relative_l2_error"] or "-",
            each["payload_bytes"],
        )
        rows.append(f"| {' | '.join(map(str, cells))} |")
    return [*CASES_HEAD, *rows]


def _compare(section: str, got: list[str], wanted: list[str]) -> Iterator[str]:
    for number, (have, want) in enumerate(zip_longest(got, wanted), 1):
        if have != want:
            yield f"{section}, table line {number}: {shown(have, 120)}, not {shown(want, 120)}"
