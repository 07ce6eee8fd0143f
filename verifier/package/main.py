"""Verifies an evidence package (docs/spec/evidence.md) with this project's own code.

    verify --evidence DIR [--source ROOT] [--case ID ...] [--json]

Exit codes: 0 where everything holds, 1 with findings, 2 for wrong use.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from errors import ConfigError
from evidence.matrix import all_cases
from verifier.package.findings import Finding
from verifier.package.verify import CODES, verify

FINDINGS_STATUS = 1
# A page, and a terminal, can hold so many; --json prints all.
SHOWN_MAX = 40


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError.single("command line", self.prog, message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="verify", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--evidence", required=True, type=Path, metavar="DIR")
    parser.add_argument("--source", type=Path, metavar="ROOT")
    parser.add_argument("--case", nargs="+", default=[], metavar="ID")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def _check(options: argparse.Namespace, base: Path) -> None:
    for field in ("evidence", "source"):
        folder = getattr(options, field)
        if folder is not None and not (base / folder).is_dir():
            raise ConfigError.single(f"--{field}", folder, "must be a folder")
    known = {case.case_id for case in all_cases()}
    for case_id in options.case:
        if case_id not in known:
            raise ConfigError.single("--case", case_id, "must be one of the 288 case ids")


def as_json(findings: Sequence[Finding]) -> str:
    """One object: whether everything holds, the codes checked, the findings."""
    listed = [
        {"case": each.case_id, "code": each.code, "message": each.message} for each in findings
    ]
    return json.dumps({"checks": CODES, "findings": listed, "ok": not findings}, indent=1)


def as_text(findings: Sequence[Finding], cases: int) -> str:
    """A readable verdict: one line per check, then the first findings."""
    counts = Counter(finding.code for finding in findings)
    lines = [f"{'check':<20} {'findings':>8}"]
    lines += [f"{code:<20} {counts[code]:>8}" for code in CODES]
    lines += ["", *(finding.sentence() for finding in findings[:SHOWN_MAX])]
    if len(findings) > SHOWN_MAX:
        lines.append(f"... and {len(findings) - SHOWN_MAX} more")
    verdict = f"{len(findings)} findings" if findings else "everything holds"
    return "\n".join([*lines, f"{cases} cases: {verdict}"])


def main(argv: Sequence[str]) -> int:
    """Returns the exit code."""
    base = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    try:
        options = _parser().parse_args(argv)
        _check(options, base)
    except ConfigError as failure:
        print(failure.diagnostics(), file=sys.stderr)
        return failure.exit_code
    source = base / options.source if options.source else None
    findings = verify(base / options.evidence, source=source, only=options.case)
    cases = len(set(options.case)) or len(all_cases())
    print(as_json(findings) if options.json else as_text(findings, cases))
    return FINDINGS_STATUS if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
