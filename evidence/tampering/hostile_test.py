"""The package verifier against hostile packages: findings with codes, bounded memory, no crash."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

import pytest

from evidence.package import CASES
from evidence.tampering.committed import committed_files, write_files
from evidence.tampering.hostile import CASE, HOSTILITIES
from tools.python.tiers import mostly_exhaustive
from verifier.package.findings import Finding
from verifier.package.verify import open_package, verify, verify_cases, verify_whole

# What all hostile packages together may add to the highest memory that the process ever had.
MEMORY_KIB_MAX = 128 << 10


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_files(tmp_path_factory.mktemp("committed"), committed_files())


@pytest.fixture(scope="module")
def memory_before(package: Path) -> int:
    """Highest memory so far, in KiB, once a sound package was read."""
    assert judge(package) == []
    return getrusage(RUSAGE_SELF).ru_maxrss


@pytest.fixture
def folder(package: Path) -> Iterator[Path]:
    """The package, to be altered in place; afterwards it is as it was."""
    before = _listing(package)
    yield package
    after = _listing(package)
    changed = {path for path in before | after if before.get(path) != after.get(path)}
    for path in sorted(changed & after.keys(), reverse=True):
        if stat.S_ISDIR((package / path).lstat().st_mode):
            (package / path).rmdir()
        else:
            (package / path).unlink()
    for path in sorted(changed & before.keys()):
        if path in committed_files():
            write_files(package, {path: committed_files()[path]})
    assert _listing(package).keys() == before.keys()


def _listing(folder: Path) -> dict[str, tuple[int, int, int]]:
    """What stands below a folder, links not followed, and what tells that it was altered."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        inode_size = (0, 0) if path.is_dir() else (status.st_ino, status.st_size)
        found[path.relative_to(folder).as_posix()] = (status.st_mode, *inode_size)
    return found


def judge(folder: Path) -> list[Finding]:
    """The package's checks, and those of the case that is hostile."""
    opened = open_package(folder)
    return verify_cases(opened, [CASE]) + verify_whole(opened)


@pytest.mark.parametrize(
    "name", mostly_exhaustive(HOSTILITIES, lambda name: name in list(HOSTILITIES)[::8])
)
def test_a_hostile_package_ends_in_findings(name: str, memory_before: int, folder: Path) -> None:
    code, make = HOSTILITIES[name]
    make(folder)
    found = judge(folder)
    assert code in {finding.code for finding in found}
    assert getrusage(RUSAGE_SELF).ru_maxrss - memory_before < MEMORY_KIB_MAX
    for finding in found:
        assert finding.message.isascii()
        assert finding.message.isprintable()


def test_a_hostile_source_tree(package: Path, tmp_path: Path) -> None:
    sources = open_package(package).documents.manifest["source"]["files"]
    for path, target in zip(sources, ("/dev/zero", "/etc", "absent"), strict=False):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).symlink_to(target)
    found = verify_whole(open_package(package, tmp_path))
    assert {finding.code for finding in found} == {"package.source"}


def test_every_case_of_a_package_without_anything(tmp_path: Path) -> None:
    found = {finding.code for finding in verify(tmp_path)}
    assert {"package.files", "package.schema", "matrix.coverage", "case.tape"} <= found


@pytest.mark.parametrize(
    ("new", "code"),
    [
        ('"case":"x","epoch":1', "matrix.coverage"),
        (f'"case":"{CASE}","epoch":"1"', "package.schema"),
    ],
)
def test_a_case_alone_without_a_usable_record(new: str, code: str, folder: Path) -> None:
    """Asked for alone, a case of which nothing is claimed does not hold either."""
    cases = folder / CASES
    assert verify(folder, only=[CASE]) == []
    text = cases.read_text("ascii")
    cases.unlink()
    cases.write_text(text.replace(f'"case":"{CASE}","epoch":1', new), "ascii")
    assert {finding.code for finding in verify(folder, only=[CASE])} == {code}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    assert "package.files" in {finding.code for finding in verify(tmp_path / "absent")}
