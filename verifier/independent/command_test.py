"""The command by itself: isolated in an empty directory, its exit codes and outputs."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sample_package as sample
import verify
from matrix import full_matrix

HERE = Path(__file__).absolute().parent
# What the command is made of; the rest of the directory are its tests.
MODULES = sorted(
    path
    for path in HERE.glob("*.py")
    if not path.name.endswith("_test.py")
    and path.name not in ("conftest.py", "sample_edits.py", "sample_package.py", "vectors.py")
)
ONE_CASE = sample.CLEAN


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The full matrix, as the command knows no other."""
    return sample.write(sample.build(full_matrix()), tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command's modules copied into an empty directory."""
    folder = tmp_path_factory.mktemp("alone") / "verifier"
    folder.mkdir()
    for path in MODULES:
        shutil.copyfile(path, folder / path.name)
    return folder


def run(folder: Path, *arguments: str, optimise: bool = False) -> subprocess.CompletedProcess[str]:
    options = ["-I", "-S", "-B", *(["-O"] if optimise else [])]
    return subprocess.run(
        [sys.executable, *options, str(folder), *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=folder.parent,
        env={},
        timeout=120,
    )


def test_a_valid_package(package: Path, alone: Path) -> None:
    result = run(alone, "--evidence", str(package), "--json")
    assert result.stderr == ""
    verdict = json.loads(result.stdout)
    assert (verdict["ok"], verdict["cases"], verdict["findings"]) == (True, 288, [])
    assert set(verdict["checked"]) == set(verify.CODES)
    assert min(verdict["checked"].values()) > 0
    assert result.returncode == 0


@pytest.mark.exhaustive
@pytest.mark.parametrize("optimise", [False, True])
def test_findings(package: Path, alone: Path, optimise: bool) -> None:
    tape = package / "cases" / ONE_CASE / "tape.bin"
    data = tape.read_bytes()
    tape.write_bytes(data[:-1])
    try:
        result = run(alone, "--evidence", str(package), "--json", optimise=optimise)
        text = run(alone, "--evidence", str(package), "--case", ONE_CASE, optimise=optimise)
    finally:
        tape.write_bytes(data)
    assert (result.returncode, text.returncode) == (1, 1)
    found = {(each["code"], each["case"]) for each in json.loads(result.stdout)["findings"]}
    assert {("case.tape", ONE_CASE), ("package.hash", None)} <= found
    assert f"case.tape {ONE_CASE}" in text.stdout


def test_one_case(package: Path, alone: Path) -> None:
    result = run(alone, "--evidence", str(package), "--case", ONE_CASE, sample.FAULT, "--json")
    verdict = json.loads(result.stdout)
    assert (verdict["ok"], verdict["cases"], verdict["whole"]) == (True, 2, False)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (f'"case":"{ONE_CASE}"', '"case":"x"', "matrix.coverage"),
        (f'"case":"{ONE_CASE}","epoch":1', f'"case":"{ONE_CASE}","epoch":"1"', "package.schema"),
    ],
)
def test_a_case_without_a_usable_record_does_not_hold(
    old: str, new: str, code: str, package: Path, alone: Path
) -> None:
    cases = package / "cases.jsonl"
    data = cases.read_text("ascii")
    assert old in data
    cases.write_text(data.replace(old, new), "ascii")
    try:
        result = run(alone, "--evidence", str(package), "--case", ONE_CASE, "--json")
    finally:
        cases.write_text(data, "ascii")
    found = {(each["code"], each["case"]) for each in json.loads(result.stdout)["findings"]}
    assert result.returncode == 1
    assert (code, ONE_CASE) in found


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--evidence", "nowhere"],
        ["--evidence", ".", "--source", "nowhere"],
        ["--evidence", ".", "--case", "no-such-case"],
        ["--evidence", ".", "--unknown"],
        ["--evidence", ".", "--jso"],
    ],
)
def test_wrong_use(arguments: list[str], alone: Path) -> None:
    result = run(alone, *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert "Traceback" not in result.stderr


def test_an_empty_package_has_findings(tmp_path: Path, alone: Path) -> None:
    result = run(alone, "--evidence", str(tmp_path))
    assert (result.returncode, result.stderr) == (1, "")


@pytest.mark.exhaustive
def test_only_the_standard_library_is_loaded(package: Path, alone: Path) -> None:
    """Runs the command in an interpreter that then lists where each of its modules came from."""
    probe = alone.parent / "probe.py"
    probe.write_text(
        "import json, runpy, sys\n"
        f"sys.argv = ['verifier', '--evidence', {str(package)!r}, '--json']\n"
        "try:\n"
        f"    runpy.run_path({str(alone)!r}, run_name='__main__')\n"
        "except SystemExit as done:\n"
        "    code = done.code\n"
        "loaded = {name: getattr(each, '__file__', None) for name, each in sys.modules.items()}\n"
        "print(json.dumps([code, loaded]))\n",
        encoding="ascii",
    )
    result = subprocess.run(
        [sys.executable, "-I", "-S", "-B", str(probe)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    code, loaded = json.loads(result.stdout.splitlines()[-1])
    assert code == 0
    own = {path.stem for path in MODULES}
    strangers = {
        name: file
        for name, file in loaded.items()
        if name.split(".")[0] not in sys.stdlib_module_names | {"__main__"} | own
        or (name in own and name != "__main__" and Path(file).parent != alone)
    }
    assert strangers == {}
    assert own - {"__main__"} <= loaded.keys()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_imports(path: Path) -> None:
    """Only the standard library and modules of this directory, none of which hides another."""
    own = {each.stem for each in MODULES}
    assert path.name == "__main__.py" or path.stem not in sys.stdlib_module_names
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names = [node.module or ""]
        for name in names:
            assert name.split(".")[0] in sys.stdlib_module_names | own
