"""The command: two runs or two ranks, its verdict and its exit code."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from coordinator.fake_rank import record_run
from coordinator.run_files import LEDGER, RunFiles
from errors import ConfigError
from manifest.run_manifest import from_flags
from tools.diff_trace.main import diff_trace, main
from tools.diff_trace.written import flight_lines, trace_lines

MANIFEST = from_flags({"ranks": "2", "batch": "1", "sequence": "2", "seed": "3"})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two runs with other weights; the trace and the flight file of the first."""
    record_run(MANIFEST, RunFiles(tmp_path / "a"))
    record_run(MANIFEST, RunFiles(tmp_path / "same"))
    record_run(from_flags({"ranks": "2", "batch": "1", "sequence": "2"}), RunFiles(tmp_path / "b"))
    for name, lines in (("t", trace_lines(tmp_path / "a")), ("f", flight_lines(tmp_path / "a"))):
        (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def verdict(folder: Path, *argv: str) -> tuple[int, str]:
    page = io.StringIO()
    return diff_trace(argv, folder, page), page.getvalue()


@pytest.mark.parametrize("right", ["a", "same", f"same/{LEDGER}", "t", "f"])
@pytest.mark.parametrize("left", ["a", f"a/{LEDGER}", "t", "f"])
def test_the_same_run_in_any_form(folder: Path, left: str, right: str) -> None:
    code, page = verdict(folder, left, right)
    assert (code, page.split(":")[0]) == (0, "the same")


@pytest.mark.parametrize(
    ("left", "right"), [("a", "b"), ("f", "b"), ("t", "b"), (f"a/{LEDGER}", f"b/{LEDGER}")]
)
def test_other_weights_differ_in_the_first_weight(folder: Path, left: str, right: str) -> None:
    code, page = verdict(folder, left, right)
    first, a, b = page.splitlines()
    assert code == 1
    assert "frame 4 (send WEIGHT, rank 0" in first
    assert a.startswith("  A  ")
    assert b.startswith("  B  ")
    if left in "af":
        assert "payload element 0" in first


def test_two_ranks(folder: Path) -> None:
    assert verdict(folder, "a", "--ranks", "0", "1")[0] == 0
    assert verdict(folder, "t", "--ranks", "1", "0")[0] == 0


REFUSED = {
    "nothing": (),
    "one run": ("a",),
    "a run and ranks": ("a", "b", "--ranks", "0", "1"),
    "one rank": ("a", "--ranks", "0"),
    "one rank twice": ("a", "--ranks", "1", "1"),
    "a rank that is not there": ("a", "--ranks", "0", "2"),
    "a rank in words": ("a", "--ranks", "0", "one"),
    "a rank of many digits": ("a", "--ranks", "0", "9" * 5000),
    "another option": ("a", "b", "--fast"),
    "no such run": ("a", "c"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(folder: Path, name: str) -> None:
    with pytest.raises(ConfigError):
        verdict(folder, *REFUSED[name])


def test_exit_codes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {"BUILD_WORKING_DIRECTORY": str(folder)}
    assert main(["a", "same"], environment) == 0
    assert main(["a", "b"], environment) == 1
    capsys.readouterr()
    assert main(["a", "nowhere"], environment) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
