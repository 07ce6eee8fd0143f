"""A module planted wherever the host's Python would look is invisible to a target.

Also to its children and grandchildren. The same plants are visible to the host's Python, which
shows that the test can fail.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest
from runfiles import Runfiles

# One name for each way in.
PLANTS = {
    "planted_on_pythonpath": "path",
    "planted_in_user_base": "base/lib/python3.11/site-packages",
    "planted_in_home": "home/.local/lib/python3.11/site-packages",
    "planted_beside_caller": "cwd",
}


@pytest.fixture
def planted(tmp_path: Path) -> dict[str, str]:
    """Plants the modules; returns the environment of a caller whose shell points at them."""
    for name, folder in PLANTS.items():
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / f"{name}.py").write_text("", encoding="utf-8")
    startup = tmp_path / "startup.py"
    startup.write_text("raise SystemExit('PYTHONSTARTUP ran')\n", encoding="utf-8")
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path / "home"),
        "PYTHONPATH": str(tmp_path / "path"),
        "PYTHONSTARTUP": str(startup),
    }


def probe() -> str:
    """The path of the probe's launcher."""
    runfiles = Runfiles.Create()
    assert runfiles is not None
    path = runfiles.Rlocation("rankproof/tools/python/import_probe")
    assert path is not None
    return path


def run(command: list[str], environment: Mapping[str, str], cwd: Path) -> bytes:
    """Runs a process to its end and returns what it printed."""
    result = subprocess.run(
        command, env=dict(environment), cwd=cwd, check=True, stdout=subprocess.PIPE, timeout=60
    )
    return result.stdout


@pytest.mark.parametrize(
    "extra",
    [
        {},
        {"PYTHONHOME": "/nonexistent", "PYTHONPLATLIBDIR": "nowhere"},
        {"PYTHONUSERBASE": "base"},
        {"PYTHONINSPECT": "1", "PYTHONBREAKPOINT": "planted_on_pythonpath.run"},
    ],
    ids=["path and home", "other home", "user base", "hooks"],
)
def test_plants_are_invisible(
    planted: dict[str, str], tmp_path: Path, extra: dict[str, str]
) -> None:
    if "PYTHONUSERBASE" in extra:
        extra = {"PYTHONUSERBASE": str(tmp_path / extra["PYTHONUSERBASE"])}
    output = run([probe(), "1", *PLANTS], planted | extra, tmp_path / "cwd")
    reports = json.loads(output)
    assert [report["found"] for report in reports] == [[], [], []]


def test_nothing_but_runfiles_and_the_standard_library_is_on_the_path(
    planted: dict[str, str], tmp_path: Path
) -> None:
    standard_library = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    standard_library |= {f"{entry}/lib-dynload" for entry in standard_library}
    for report in json.loads(run([probe(), "1"], planted, tmp_path)):
        for entry in report["path"]:
            archive = Path(entry).suffix == ".zip"
            assert archive or entry in standard_library or ".runfiles" in entry, entry


def test_the_host_python_sees_the_plants(planted: dict[str, str], tmp_path: Path) -> None:
    code = "import " + ", ".join(sorted(PLANTS.keys() - {"planted_in_user_base"}))
    host = Path(sys.executable).resolve()
    run([str(host), "-c", code], planted, tmp_path / "cwd")
    with_base = planted | {"PYTHONUSERBASE": str(tmp_path / "base")}
    run([str(host), "-c", "import planted_in_user_base"], with_base, tmp_path / "cwd")


def test_this_process_has_no_host_packages() -> None:
    assert [entry for entry in sys.path if "-packages" in entry and ".runfiles" not in entry] == []
