"""The checks as one table, and the one pass over a package that runs them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import bundle
import case_checks
import number_checks
import package_checks
import run
from bundle import Bundle
from case_checks import CaseCheck
from findings import Findings, Log
from matrix import Case, full_matrix
from package import Package
from package_checks import PackageCheck

# Code of evidence.md's table to the checks that report it. `package.schema` has one of each kind:
# the files of the package as a whole, and the ledgers.
CASE_CHECKS: dict[str, CaseCheck] = {
    "package.schema": case_checks.check_form,
    "case.run_identity": case_checks.check_run_identity,
    "case.output": number_checks.check_output,
    "case.error": number_checks.check_error,
    "case.tape": case_checks.check_tape,
    "case.ledger": case_checks.check_ledger,
    "case.session": case_checks.check_session,
    "case.metadata": case_checks.check_metadata,
    "case.tensors": number_checks.check_tensors,
    "case.reduction": number_checks.check_reduction,
    "case.arithmetic": number_checks.check_arithmetic,
    "case.accounting": case_checks.check_accounting,
    "case.outcome": number_checks.check_outcome,
}
PACKAGE_CHECKS: dict[str, PackageCheck] = {
    "package.files": package_checks.check_files,
    "package.schema": package_checks.check_schema,
    "package.hash": package_checks.check_hash,
    "package.source": package_checks.check_source,
    "package.program": package_checks.check_program,
    "matrix.coverage": package_checks.check_coverage,
    "summary.value": package_checks.check_summary,
    "invariance.groups": package_checks.check_invariance,
    "report.value": package_checks.check_report,
    "figure.value": package_checks.check_figure,
}
CODES = tuple(dict.fromkeys([*PACKAGE_CHECKS, *CASE_CHECKS]))


@dataclass(frozen=True)
class Verdict:
    """What was checked and found; `whole` where neither cases nor checks were left out."""

    findings: Findings
    cases: int
    whole: bool
    source_given: bool

    @property
    def ok(self) -> bool:
        return not self.findings


def verify(
    root: Path,
    *,
    source: Path | None = None,
    only: Collection[str] = (),
    disabled: Collection[str] = frozenset(),
    matrix: Mapping[str, Case] | None = None,
) -> Verdict:
    """Checks the package at `root`; nothing in it raises, whatever it holds.

    Args:
        root: the package's directory.
        source: root of the source tree whose files the manifest names, or None.
        only: names of cases; if any, only the checks of these cases run.
        disabled: codes whose checks are left out. It exists for the test that each check is needed.
        matrix: the cases that a package must have; the full matrix but for tests.

    Raises:
        ValueError: an unknown code in `disabled` or case in `only`.
    """
    matrix = full_matrix() if matrix is None else matrix
    unknown = (set(disabled) - set(CODES)) | (set(only) - matrix.keys())
    if unknown:
        raise ValueError(f"not a check or case: {', '.join(sorted(unknown))}")
    findings = Findings()
    package = bundle.load(Package(root), matrix, source)
    claims = package.claims()
    if only:
        _check_records(package, findings, sorted(set(only)), disabled)
    for name in sorted(only or matrix):
        one = run.load(package, matrix[name], claims.get(name))
        for code, case_check in CASE_CHECKS.items():
            if code not in disabled:
                case_check(one, Log(findings, code))
    if not only:
        _check_whole(package, findings, disabled)
    return Verdict(findings, len(only or matrix), not only, source is not None)


def _check_records(
    package: Bundle, findings: Findings, names: Sequence[str], disabled: Collection[str]
) -> None:
    """That there is something to check of each case, which the whole package's checks see to."""
    listed = [each.get("case") for each in package.listed]
    usable = package.by_name()
    for name in names:
        if listed.count(name) != 1:
            code, message = "matrix.coverage", f"the case stands {listed.count(name)} times"
        elif name not in usable:
            code, message = "package.schema", "the record of the case has another form"
        else:
            continue
        if code not in disabled:
            Log(findings, code).found(message, name)


def _check_whole(package: Bundle, findings: Findings, disabled: Collection[str]) -> None:
    for code, check in PACKAGE_CHECKS.items():
        if code not in disabled:
            check(package, Log(findings, code))
