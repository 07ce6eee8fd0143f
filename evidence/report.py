"""report.md: the package in words and tables (docs/spec/evidence.md E9)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from wire.canonical import JsonObject

NUMBERS_HEADING: Final = "## Numbers"
CASES_HEADING: Final = "## Cases"

_INTRODUCTION: Final = """\
# Evidence of the frozen decoder block

One decoder block (hidden 16, 8 query heads, 4 KV heads, intermediate 24) under tensor parallelism:
{total} runs over real worker processes and Unix sockets, each rank a process of its own. {clean}
runs are clean; {fault} have one planted fault each, and end without an output and without a process
left. Every frame of every run is in its tape; `docs/spec/evidence.md` says how to check all of it
without any of this project's code.

![errors, faults and bytes](figure.svg)

## What it shows

- Every clean output is within the gates of the float64 reference: the largest absolute error is
  {max_abs}, the largest relative L2 error {relative_l2}; the gates are 2e-5, the alarm is at 1e-6.
- In `pairwise` order the output is the same bytes for 1, 2 and 4 ranks in {identical} of {groups}
  groups of equal batch, sequence and seed: tensor parallelism does not change the result. In `rank`
  order four ranks differ by float32 rounding.
- Every fault is found in the phase where it was planted, at the rank where it was planted, with the
  code of its class: {protocol} protocol errors, {contract} contract errors, {deadline} deadlines.
- Payload bytes of every clean run equal the formula 4 R (E + 6 B T H) of `docs/spec/program.md`.

## Isolation

Each worker is forked from a parent that has the code loaded and nothing else: its memory, its
socket and its exit status are its own, and it learns weights, input and commands only from frames.
The arithmetic uses no BLAS, no vendor math library and no SIMD exponential, so these files are the
same bytes on any machine.
"""


def leaves(value: object, path: str = "") -> Iterator[tuple[str, str]]:
    """(dotted path, text) of every leaf of a JSON object, in key order."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from leaves(value[key], f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        yield path, ", ".join(str(item) for item in value)
    else:
        yield path, str(value)


def _or_dash(value: object) -> str:
    return "-" if value is None else str(value)


def _case_row(record: Mapping[str, Any]) -> str:
    error = record["error"] or {"code": None, "rank": None}
    cells = (
        record["case"],
        record["outcome"],
        error["code"],
        error["rank"],
        record["max_abs_error"],
        record["relative_l2_error"],
        record["payload_bytes"],
    )
    return f"| {' | '.join(_or_dash(cell) for cell in cells)} |"


def number_rows(summary: JsonObject) -> list[str]:
    """The table of the section `## Numbers`, with its header rows."""
    return [
        "| what | value |",
        "|---|---|",
        *(f"| {path} | {value} |" for path, value in leaves(summary)),
    ]


def case_rows(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table of the section `## Cases`, with its header rows."""
    return [
        "| case | outcome | code | rank | max abs error | relative L2 | payload bytes |",
        "|---|---|---|---|---|---|---|",
        *(_case_row(record) for record in records),
    ]


def report(summary: JsonObject, records: Sequence[Mapping[str, Any]]) -> str:
    """The whole report; a function of the summary and the cases alone."""
    values = dict(leaves(summary))
    introduction = _INTRODUCTION.format(
        total=values["cases.total"],
        clean=values["cases.clean"],
        fault=values["cases.fault"],
        max_abs=values["clean.max_abs_error"],
        relative_l2=values["clean.relative_l2_error"],
        identical=values["invariance.identical"],
        groups=values["invariance.groups"],
        protocol=values["outcomes.protocol"],
        contract=values["outcomes.contract"],
        deadline=values["outcomes.deadline"],
    )
    lines = [
        introduction.rstrip("\n"),
        "",
        NUMBERS_HEADING,
        "",
        *number_rows(summary),
        "",
        CASES_HEADING,
        "",
        *case_rows(records),
    ]
    return "\n".join(lines) + "\n"
