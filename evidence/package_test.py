"""The committed package as a whole: made again from its runs, and verified by both verifiers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from errors import ConfigError
from evidence.compare import explain
from evidence.matrix import all_cases
from evidence.package import LEDGER, MANIFEST, OUTPUT, TAPE, package_files, read_package
from evidence.package import write_package as write
from evidence.run_sources import RUN_SOURCES
from evidence.stored_run import stored_run
from evidence.tampering import independent
from evidence.tampering.committed import committed_files, write_files
from verifier.package.main import main as verify

FILES = {MANIFEST: b"{}\n", "cases/a/tape.bin": b"tape"}
# Of what is in git; the files of some file systems take more.
PACKAGE_BYTES_MAX = 10 << 20


def test_the_package_is_made_of_its_runs() -> None:
    """cases.jsonl, summary, report, figure and manifest, with the sources that are built here."""
    committed = committed_files()

    def file(case_id: str, name: str) -> bytes | None:
        return committed.get(f"cases/{case_id}/{name}")

    runs = [
        stored_run(
            case,
            file(case.case_id, LEDGER) or b"",
            file(case.case_id, TAPE) or b"",
            file(case.case_id, OUTPUT),
        )
        for case in all_cases()
    ]
    assert explain(committed, package_files(runs, RUN_SOURCES)) == ""


def test_its_size_is_bounded() -> None:
    assert sum(map(len, committed_files().values())) < PACKAGE_BYTES_MAX


@pytest.mark.exhaustive
def test_the_package_verifier_accepts_it(tmp_path: Path) -> None:
    write_files(tmp_path, committed_files())
    assert verify(["--evidence", str(tmp_path), "--source", os.curdir]) == 0


def test_the_independent_verifier_accepts_it(tmp_path: Path) -> None:
    """As a stranger runs it: no environment, no site-packages, nothing of ours to import."""
    write_files(tmp_path, committed_files())
    command = [sys.executable, "-I", "-S", str(independent.FOLDER), "--evidence", str(tmp_path)]
    run = subprocess.run(
        [*command, "--source", os.curdir],
        env={},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout


def test_a_package_is_written_and_read_back(tmp_path: Path) -> None:
    write(tmp_path / "new", FILES)
    assert read_package(tmp_path / "new") == FILES


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"precious")
    for replace in (False, True):
        with pytest.raises(ConfigError):
            write(tmp_path, FILES, replace=replace)
    assert (tmp_path / "mine").read_bytes() == b"precious"


def test_a_package_is_replaced_when_asked(tmp_path: Path) -> None:
    folder = tmp_path / "package"
    write(folder, FILES | {"cases/b/tape.bin": b"old"})
    with pytest.raises(ConfigError):
        write(folder, FILES)
    write(folder, FILES, replace=True)
    assert read_package(folder) == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["package"]


def test_a_file_where_the_folder_should_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError):
        write(tmp_path / "file", FILES)


def test_a_folder_that_is_no_package(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read_package(tmp_path)
