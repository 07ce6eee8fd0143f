"""The test runner: selection, sharding, exit codes, JUnit XML. It is run as Bazel would run it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

CASES = """
import pytest

@pytest.mark.parametrize("number", range(6))
def test_case(number):
    pass

def test_other():
    pass
"""


def run(tmp_path: Path, *arguments: str, **environment: str) -> tuple[int, list[str]]:
    """Runs the runner on CASES; returns its exit code and the names of the tests that ran."""
    source = tmp_path / "cases_test.py"
    source.write_text(CASES, encoding="utf-8")
    report = tmp_path / "report.xml"
    report.unlink(missing_ok=True)
    base = {key: os.environ[key] for key in ("PATH", "PYTHONPATH", "PYTHONSAFEPATH")}
    result = subprocess.run(
        [sys.executable, "-m", "tools.python.pytest_main", str(source), *arguments],
        env=base | {"XML_OUTPUT_FILE": str(report), "TEST_TMPDIR": str(tmp_path)} | environment,
        check=False,
        capture_output=True,
        timeout=60,
    )
    names = [case.attrib["name"] for case in ElementTree.parse(report).iter("testcase")]
    return result.returncode, names


ALL = [*(f"test_case[{number}]" for number in range(6)), "test_other"]


def test_everything_runs_by_default(tmp_path: Path) -> None:
    assert run(tmp_path) == (0, ALL)


def test_shards_run_each_test_exactly_once(tmp_path: Path) -> None:
    shards = 3
    seen: list[str] = []
    for shard in range(shards):
        status = tmp_path / f"status{shard}"
        code, names = run(
            tmp_path,
            TEST_TOTAL_SHARDS=str(shards),
            TEST_SHARD_INDEX=str(shard),
            TEST_SHARD_STATUS_FILE=str(status),
        )
        assert code == 0
        assert status.exists()
        seen += names
    assert sorted(seen) == sorted(ALL)


def test_filter_selects_by_part_of_the_name(tmp_path: Path) -> None:
    assert run(tmp_path, TESTBRIDGE_TEST_ONLY="test_case[3]") == (0, ["test_case[3]"])


@pytest.mark.exhaustive
def test_pytest_arguments_pass_through(tmp_path: Path) -> None:
    assert run(tmp_path, "-kother") == (0, ["test_other"])


@pytest.mark.exhaustive
def test_keyword_is_applied_before_sharding(tmp_path: Path) -> None:
    shard = {"TEST_TOTAL_SHARDS": "2", "TEST_SHARD_INDEX": "1"}
    assert run(tmp_path, "-ktest_case", **shard) == (0, [ALL[1], ALL[3], ALL[5]])


def test_an_empty_shard_passes(tmp_path: Path) -> None:
    shard = {"TEST_TOTAL_SHARDS": "9", "TEST_SHARD_INDEX": "8"}
    assert run(tmp_path, **shard) == (0, [])


@pytest.mark.parametrize("shards", ["1", "2"])
def test_a_filter_that_names_nothing_fails(tmp_path: Path, shards: str) -> None:
    code, names = run(tmp_path, TESTBRIDGE_TEST_ONLY="absent", TEST_TOTAL_SHARDS=shards)
    assert code == pytest.ExitCode.NO_TESTS_COLLECTED
    assert names == []


MARKED = "import pytest\n@pytest.mark.{}\ndef test_marked():\n    pass\n"


def test_each_tier_has_its_tests(tmp_path: Path) -> None:
    marked = tmp_path / "marked_test.py"
    marked.write_text(MARKED.format("exhaustive"), encoding="utf-8")
    assert run(tmp_path, str(marked), "-mexhaustive") == (0, ["test_marked"])
    assert run(tmp_path, str(marked), "-mnot exhaustive") == (0, ALL)


def test_a_filter_finds_tests_of_both_tiers(tmp_path: Path) -> None:
    marked = tmp_path / "marked_test.py"
    marked.write_text(MARKED.format("exhaustive"), encoding="utf-8")
    only = {"TESTBRIDGE_TEST_ONLY": "test_marked"}
    assert run(tmp_path, str(marked), "-mnot exhaustive", **only) == (0, ["test_marked"])


def test_a_tier_without_tests_fails(tmp_path: Path) -> None:
    assert run(tmp_path, "-mexhaustive") == (pytest.ExitCode.NO_TESTS_COLLECTED, [])


def test_another_marker_is_refused(tmp_path: Path) -> None:
    marked = tmp_path / "marked_test.py"
    marked.write_text(MARKED.format("exhaustiv"), encoding="utf-8")
    code, _ = run(tmp_path, str(marked))
    assert code == pytest.ExitCode.INTERRUPTED


@pytest.mark.exhaustive
def test_failures_are_reported(tmp_path: Path) -> None:
    failing = tmp_path / "failing_test.py"
    failing.write_text("def test_failure():\n    raise AssertionError\n", encoding="utf-8")
    code, _ = run(tmp_path, str(failing))
    assert code == pytest.ExitCode.TESTS_FAILED


def test_assertions_hold_when_python_drops_them(tmp_path: Path) -> None:
    failing = tmp_path / "failing_test.py"
    failing.write_text("def test_failure():\n    assert not 1\n", encoding="utf-8")
    code, names = run(tmp_path, str(failing), PYTHONOPTIMIZE="1")
    assert (code, "test_failure" in names) == (pytest.ExitCode.TESTS_FAILED, True)


def test_warnings_are_errors(tmp_path: Path) -> None:
    warning = tmp_path / "warning_test.py"
    warning.write_text("import warnings\ndef test_it():\n    warnings.warn('x', stacklevel=1)\n")
    code, _ = run(tmp_path, str(warning))
    assert code == pytest.ExitCode.TESTS_FAILED
