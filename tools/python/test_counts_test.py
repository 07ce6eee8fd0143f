"""Counting: passed, failed and broken cases; several files; runs that wrote no report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.python import test_counts

PASSED = '<testcase name="a"/>'
FAILED = '<testcase name="b"><failure message="x"/></testcase>'
BROKEN = '<testcase name="c"><error message="x"/></testcase>'


def events(tmp_path: Path, *suites: str) -> Path:
    """The event file of a run with these JUnit files, and events of other kinds."""
    lines: list[object] = [{"id": {"started": {}}}, {"testSummary": {"totalRunCount": 1}}]
    for number, cases in enumerate(suites):
        report = tmp_path / f"shard {number}.xml"
        report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
        outputs = [
            {"name": "test.log", "uri": "file:///absent"},
            {"name": "test.xml", "uri": report.as_uri()},
        ]
        lines.append({"testResult": {"testActionOutput": outputs}})
    path = tmp_path / "events.json"
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("suites", "exit_code", "wanted"),
    [
        ([PASSED * 3], 0, "3 passed, 0 failed"),
        ([PASSED, PASSED + FAILED, BROKEN], 3, "2 passed, 2 failed"),
        ([PASSED], 1, "1 passed, 1 failed"),
        ([], 1, "0 passed, 1 failed"),
        ([""], 0, "0 passed, 0 failed"),
    ],
)
def test_counting(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    suites: list[str],
    exit_code: int,
    wanted: str,
) -> None:
    assert test_counts.main([str(exit_code), str(events(tmp_path, *suites))]) == 0
    assert capsys.readouterr().out == wanted + "\n"


def test_several_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        files.append(str(events(tmp_path / name, PASSED, FAILED)))
    assert test_counts.main(["3", *files, str(tmp_path / "absent")]) == 0
    assert capsys.readouterr().out == "2 passed, 2 failed\n"


def test_a_run_that_wrote_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert test_counts.main(["2", str(tmp_path / "absent")]) == 0
    assert capsys.readouterr().out == "0 passed, 1 failed\n"
