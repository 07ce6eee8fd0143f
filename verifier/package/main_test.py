"""The command line: verdicts, wrong use, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from errors import MisuseError
from verifier.package.main import main
from verifier.package.verify import CODES, open_package, verify, verify_cases, verify_whole


@pytest.fixture(autouse=True)
def no_callers_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)


def test_findings_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--evidence", str(tmp_path)]) == 1
    said = capsys.readouterr().out
    assert all(code in said for code in CODES)
    assert "manifest.json" in said
    assert "more" in said


def test_findings_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--evidence", str(tmp_path), "--json", "--case", "fault-delay-mlp-s2"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert said["ok"] is False
    assert {finding["case"] for finding in said["findings"]} == {"fault-delay-mlp-s2"}
    assert {finding["code"] for finding in said["findings"]} <= set(said["checks"])


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--evidence", "absent"],
        ["--evidence", ".", "--source", "absent"],
        ["--evidence", ".", "--case", "clean-r3"],
        ["--evidence", ".", "--ev", "."],
    ],
)
def test_wrong_use(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("config.")


def test_names_that_are_none(tmp_path: Path) -> None:
    package = open_package(tmp_path)
    with pytest.raises(MisuseError):
        verify_cases(package, ["clean-r3"])
    with pytest.raises(MisuseError):
        verify_whole(package, ["case.taste"])


def test_every_check_can_be_left_out(tmp_path: Path) -> None:
    assert verify(tmp_path, disabled=CODES) == []
