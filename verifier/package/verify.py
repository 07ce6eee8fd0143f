"""The package verifier: every check of docs/spec/evidence.md's table, as one table.

It uses this project's own reader, session, program and maths; the independent verifier beside it
shares nothing with them. A check reports findings of its own code only, and none is a warning.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final

from errors import MisuseError
from evidence.matrix import all_cases
from verifier.package import case_checks, number_checks, package_checks
from verifier.package.case_checks import CaseCheck
from verifier.package.case_run import read_case
from verifier.package.documents import read_documents
from verifier.package.files import Directory, PackageFiles, Store
from verifier.package.findings import Finding, Findings, Log
from verifier.package.package_checks import Package, PackageCheck

PACKAGE_CHECKS: Final[dict[str, PackageCheck]] = {
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
# `package.schema` has a part over each case: the ledger's lines are JSON too.
CASE_CHECKS: Final[dict[str, CaseCheck]] = {
    "package.schema": case_checks.check_ledger_form,
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
_CASES: Final = {case.case_id: case for case in all_cases()}
CODES: Final = tuple(dict.fromkeys((*PACKAGE_CHECKS, *CASE_CHECKS)))


def verify(
    package: Path | Store,
    *,
    source: Path | None = None,
    only: Collection[str] = (),
    disabled: Collection[str] = (),
) -> list[Finding]:
    """Every finding of a package: none means that it holds. Nothing in a package raises.

    package: its directory, or another store of its files. source: root of the source tree that the
    manifest names, to be compared too. only: case ids; then only their case checks run. disabled:
    codes left out, for the test that each check is needed.
    """
    opened = open_package(package, source)
    # What is wrong with the whole explains what is wrong with cases: it comes first.
    findings = verify_records(opened, only, disabled) if only else verify_whole(opened, disabled)
    return findings + verify_cases(opened, only or _CASES, disabled)


def verify_records(
    package: Package, case_ids: Collection[str], disabled: Collection[str] = ()
) -> list[Finding]:
    """That there is something to check of each case, which `verify_whole` sees to otherwise."""
    listed = [record.get("case") for record in package.documents.listed]
    findings = Findings()
    for case_id in sorted(set(case_ids)):
        if listed.count(case_id) != 1:
            code, message = "matrix.coverage", f"stands {listed.count(case_id)} times"
        elif case_id not in package.documents.by_case:
            code, message = "package.schema", "the record has another form"
        else:
            continue
        if code not in disabled:
            Log(findings, code, case_id).found(message)
    return list(findings)


def open_package(package: Path | Store, source: Path | None = None) -> Package:
    """A package's files and documents, ready for the checks."""
    files = PackageFiles(Directory(package) if isinstance(package, Path) else package)
    return Package(files, read_documents(files), source)


def verify_cases(
    package: Package, case_ids: Collection[str], disabled: Collection[str] = ()
) -> list[Finding]:
    """The case checks; each reads its own case's files and record and nothing else."""
    _demand_known(case_ids, _CASES)
    _demand_known(disabled, CODES)
    findings = Findings()
    for case_id in sorted(set(case_ids)):
        run = read_case(_CASES[case_id], package.files, package.documents)
        for code, check in CASE_CHECKS.items():
            if code not in disabled:
                check(run, Log(findings, code, case_id))
    return list(findings)


def verify_whole(package: Package, disabled: Collection[str] = ()) -> list[Finding]:
    """The checks over the package as a whole."""
    _demand_known(disabled, CODES)
    findings = Findings()
    for code, check in PACKAGE_CHECKS.items():
        if code not in disabled:
            check(package, Log(findings, code))
    return list(findings)


def _demand_known(names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            raise MisuseError(f"{name!r} is no case, or no check")
