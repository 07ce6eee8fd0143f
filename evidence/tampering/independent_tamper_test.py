"""The independent verifier finds the same tampers by the same checks, and needs each of them."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from evidence.tampering import independent
from evidence.tampering.committed import committed_files, write_files
from evidence.tampering.tampers import TAMPERS, Tamper
from tools.python.tiers import mostly_exhaustive

COMMITTED = committed_files()
SCHEMA = "package.schema"
# The first of every check of a case, and one of the whole package.
FIRST = {tamper.code: name for name, tamper in reversed(TAMPERS.items())}
ALWAYS = {name for code, name in FIRST.items() if code.startswith("case.")} | {
    FIRST["report.value"]
}
CASE_CODES = independent.case_checks()
# Checks that look at the same fact from two sides: what one finds, these find too. A tamper passes
# when a check is left out together with its kin.
KIN = {
    "case.metadata": frozenset({"case.outcome", "case.output"}),
    "case.session": frozenset({"case.metadata"}),
    "invariance.groups": frozenset({"case.arithmetic"}),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("package"), COMMITTED)


def codes(folder: Path, tamper: Tamper, disabled: Collection[str] = ()) -> set[str]:
    """The codes of all findings; the folder is afterwards as it was.

    Cases that were not altered are not looked at again. The checks over the whole package cost more
    than the others together; that they find nothing in a tamper of one case that was sealed again
    up to the manifest, tamper_test.py shows.
    """
    left_out = CASE_CODES | set(disabled)
    if tamper.code != SCHEMA and not disabled:
        # It decodes every ledger; whether it too finds something is no matter here.
        left_out |= {SCHEMA}
    files = dict(COMMITTED)
    tamper.edit(files)
    altered = {p for p in files.keys() | COMMITTED.keys() if files.get(p) != COMMITTED.get(p)}
    parts = [path.split("/") for path in altered | {f"cases/{c}/" for c in tamper.case_ids}]
    case_ids = {part[1] for part in parts if part[0] == "cases" and len(part) == 3}
    _write(folder, altered, files)
    try:
        found: set[str] = set()
        if case_ids:
            found = independent.findings(folder, only=case_ids, disabled=disabled)
        if tamper.code not in CASE_CODES:
            found |= independent.findings(folder, disabled=left_out)
    finally:
        _write(folder, altered, COMMITTED)
    return found


def _write(folder: Path, paths: Collection[str], files: dict[str, bytes]) -> None:
    for path in paths:
        (folder / path).unlink(missing_ok=True)
    write_files(folder, {path: files[path] for path in paths if path in files})


@pytest.mark.exhaustive
def test_the_committed_package_holds(folder: Path) -> None:
    assert independent.findings(folder) == set()


@pytest.mark.parametrize("name", mostly_exhaustive(TAMPERS, lambda name: name in ALWAYS))
def test_a_tamper_is_found(name: str, folder: Path) -> None:
    assert TAMPERS[name].code in codes(folder, TAMPERS[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("code", independent.checks())
def test_without_this_check_a_tamper_would_pass(code: str, folder: Path) -> None:
    left_out = {code} | KIN.get(code, frozenset())
    of_code = [tamper for tamper in TAMPERS.values() if tamper.code == code]
    of_code.sort(key=lambda tamper: not tamper.alone)
    assert any(codes(folder, tamper, left_out) == set() for tamper in of_code)
