"""The package verifier finds every tamper by the named check, and needs each of its checks."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from evidence.tampering.committed import committed_files, write_files
from evidence.tampering.tampers import TAMPERS, Tamper
from tools.python.tiers import mostly_exhaustive
from verifier.package.files import Memory
from verifier.package.verify import CODES, open_package, verify, verify_cases, verify_whole

# Outputs that differ between rank counts can't both be what the exact arithmetic gives. A verifier
# may leave that check out (docs/spec/evidence.md); without it, this one is needed.
FOLLOWS_FROM = {"invariance.groups": frozenset({"case.arithmetic"})}

# The first of every check.
ALWAYS = {tamper.code: name for name, tamper in reversed(TAMPERS.items())}.values()


def codes(tamper: Tamper, disabled: Collection[str] = ()) -> set[str]:
    """The codes of all findings. The checks of unaltered cases read nothing that was altered."""
    files = dict(committed_files())
    tamper.edit(files)
    altered = {
        path.split("/")[1]
        for path in files.keys() | committed_files().keys()
        if path.startswith("cases/") and files.get(path) != committed_files().get(path)
    }
    package = open_package(Memory(files))
    case_ids = {name for name in altered | set(tamper.case_ids) if "." not in name}
    findings = verify_cases(package, case_ids, disabled) + verify_whole(package, disabled)
    return {finding.code for finding in findings}


def test_the_committed_package_holds() -> None:
    assert verify(Memory(committed_files())) == []


@pytest.mark.parametrize("name", mostly_exhaustive(TAMPERS, lambda name: name in ALWAYS))
def test_a_tamper_is_found(name: str) -> None:
    tamper = TAMPERS[name]
    found = codes(tamper)
    assert tamper.code in found
    if tamper.alone:
        assert found == {tamper.code}


@pytest.mark.exhaustive
@pytest.mark.parametrize("code", CODES)
def test_without_this_check_a_tamper_would_pass(code: str) -> None:
    left_out = {code} | FOLLOWS_FROM.get(code, frozenset())
    of_code = [tamper for tamper in TAMPERS.values() if tamper.code == code]
    of_code.sort(key=lambda tamper: not tamper.alone)
    assert any(codes(tamper, left_out) == set() for tamper in of_code)


def test_a_source_byte(tmp_path: Path) -> None:
    """The source tree that was built from is another one than the one at hand."""
    sources = open_package(Memory(committed_files())).documents.manifest["source"]["files"]
    changed = min(sources)
    tree = write_files(tmp_path, {changed: b"# not what was built\n"})
    found = verify_whole(open_package(Memory(committed_files()), tree))
    assert {finding.code for finding in found} == {"package.source"}
    assert any(changed in finding.message for finding in found)
