"""The verdict for a reader and for a script."""

from __future__ import annotations

import json
from collections.abc import Iterator

from verify import CASE_CHECKS, CODES, PACKAGE_CHECKS, Verdict

_WHAT = {
    "package.files": "files are there, regular, within limits, and none else",
    "package.schema": "JSON canonical, with the right keys and types",
    "package.hash": "size and digest of each file",
    "package.source": "identity of the sources",
    "package.program": "program digests recomputed",
    "matrix.coverage": "every case of the matrix exactly once",
    "case.run_identity": "run identities recomputed",
    "case.output": "outputs are the results in the tapes, and finite",
    "case.error": "errors against an own float64 block, gates, alarm",
    "case.tape": "tape records decode into frames",
    "case.ledger": "ledger entries recomputed from the tape",
    "case.session": "frames in the legal and exact order",
    "case.metadata": "metadata of frames as the program predicts",
    "case.tensors": "weights and inputs regenerated from the seed",
    "case.reduction": "totals are the sums of the partials, bit for bit",
    "case.arithmetic": "partials and results recomputed, bit for bit",
    "case.accounting": "frames and bytes counted, and by the formula",
    "case.outcome": "outcomes; each fault is in its tape",
    "summary.value": "numbers of the summary recomputed",
    "invariance.groups": "groups with equal outputs at 1, 2 and 4 ranks",
    "report.value": "tables of the report",
    "figure.value": "elements of the figure",
}


def as_text(verdict: Verdict) -> Iterator[str]:
    """Lines for a terminal: a table of what was checked, the findings, one last sentence."""
    yield f"{'check':<18}  {'looked at':>9}  {'findings':>8}  what"
    found: dict[str, int] = {}
    for finding in verdict.findings:
        found[finding.code] = found.get(finding.code, 0) + 1
    for code in CODES:
        if verdict.whole or code in CASE_CHECKS:
            count = verdict.findings.checked.get(code, 0)
            yield f"{code:<18}  {count:>9}  {found.get(code, 0):>8}  {_WHAT[code]}"
    if found:
        yield ""
    for finding in verdict.findings:
        place = "" if finding.case is None else f" {finding.case}"
        yield f"{finding.code}{place}: {finding.message}"
    yield ""
    yield from _left_out(verdict)
    if verdict.ok:
        yield f"OK: {verdict.cases} cases hold."
    else:
        total = sum(found.values())
        yield f"NOT OK: {total} findings of {len(found)} checks in {verdict.cases} cases."


def _left_out(verdict: Verdict) -> Iterator[str]:
    if not verdict.whole:
        names = ", ".join(code for code in PACKAGE_CHECKS if code not in CASE_CHECKS)
        yield f"Only the cases asked for were checked, without {names}."
    elif not verdict.source_given:
        yield "No source tree was given (--source): the sources' own bytes were not compared."


def as_json(verdict: Verdict) -> str:
    """One JSON object: ok, cases, whole, how much each check looked at, and the findings."""
    findings = [
        {"code": each.code, "case": each.case, "message": each.message} for each in verdict.findings
    ]
    return json.dumps(
        {
            "ok": verdict.ok,
            "cases": verdict.cases,
            "whole": verdict.whole,
            "source_compared": verdict.source_given and verdict.whole,
            "checked": {code: verdict.findings.checked.get(code, 0) for code in CODES},
            "findings": findings,
        },
        sort_keys=True,
    )
