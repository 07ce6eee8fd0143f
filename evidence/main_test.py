"""The command line: what it prints, what it refuses, its exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from evidence.main import main
from evidence.tampering.committed import PACKAGE, committed_files, write_files

CASE = "clean-r1-b1-t1-s1-rank"


@pytest.fixture(autouse=True)
def no_callers_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list"]) == 0
    names = capsys.readouterr().out.split()
    assert len(names) == 288
    assert names == sorted(names)


def test_some_cases_and_their_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["build", "--out", str(out), "--only", CASE, "--timings"]) == 0
    said = capsys.readouterr().out
    assert "clean, 1 ranks" in said
    assert "1 cases, 3 files" in said
    for name in ("ledger.jsonl", "tape.bin", "output.f32"):
        path = f"cases/{CASE}/{name}"
        assert (out / path).read_bytes() == (PACKAGE / path).read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dance"],
        ["build"],
        ["build", "--out", "x", "--only", "clean-r3-b1-t1-s1-rank"],
        ["build", "--out", "x", "--jobs", "0"],
        ["build", "--out", "x", "--jobs", "many"],
        ["build", "--out", "x", "--only", CASE, "--replace"],
        ["build", "--o", "x"],
        ["compare", "absent", "absent"],
    ],
)
def test_wrong_use(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("config.")


def test_a_folder_that_holds_something_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    assert main(["build", "--out", str(tmp_path), "--only", CASE]) == 2


def test_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left = write_files(tmp_path / "left", committed_files())
    right = write_files(tmp_path / "right", committed_files())
    assert main(["compare", str(left), str(right)]) == 0
    path = f"cases/{CASE}/output.f32"
    (right / path).write_bytes(b"\0" + (right / path).read_bytes()[1:])
    assert main(["compare", str(left), str(right)]) == 1
    assert "element 0" in capsys.readouterr().out
