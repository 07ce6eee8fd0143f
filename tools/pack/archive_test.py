"""The tests of one archive; py_dist_test runs them and says which archive in the environment."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

ARCHIVE = Path(os.environ["ARCHIVE"])
REBUILT = Path(os.environ["REBUILT"])
NAME = ARCHIVE.stem


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked program."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / NAME / NAME


def run(program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Starts the program where nothing but PATH is set."""
    return subprocess.run(
        [str(program), *arguments],
        env={"PATH": os.environ["PATH"]} | environment,
        cwd=program.parent.parent,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_rebuild_has_the_same_bytes() -> None:
    assert ARCHIVE.read_bytes() == REBUILT.read_bytes()


def test_members_are_sorted_and_carry_no_trace_of_the_builder() -> None:
    with tarfile.open(ARCHIVE) as archive:
        members = archive.getmembers()
    names = [member.name for member in members]
    assert names == sorted(names)
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}
    assert {member.mode for member in members} == {0o644, 0o755}
    assert {member.type for member in members} == {tarfile.REGTYPE}
    assert [name for name in names if not name.startswith(f"{NAME}/")] == []


def test_it_runs_unpacked(program: Path) -> None:
    result = run(program, *os.environ["RUN"].split())
    if result.returncode != 0 or result.stderr:
        raise AssertionError(f"exit code {result.returncode}: {result.stderr}")
    digested = os.environ.get("PRINTS_DIGEST_OF")
    if digested is not None:
        assert hashlib.sha256(Path(digested).read_bytes()).hexdigest() in result.stdout


def test_it_runs_through_a_link(program: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(program)
    assert run(link, *os.environ["RUN"].split()).returncode == 0


def test_without_a_python_it_says_what_it_needs(program: Path, tmp_path: Path) -> None:
    for tool in ("bash", "dirname", "readlink"):
        (tmp_path / tool).symlink_to(Path("/bin") / tool)
    result = run(program, PATH=str(tmp_path))
    assert result.returncode == 2
    assert len(result.stderr.splitlines()) == 1
    assert "CPython 3.11" in result.stderr
