"""Where the worker is, and what of the caller's environment it gets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from coordinator.worker_program import (
    WorkerProgram,
    faulty_worker_exists,
    faulty_worker_program,
    worker_program,
)
from errors import ConfigError, TPError

PROGRAMS = [worker_program, faulty_worker_program]


@pytest.fixture
def runfiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty tree of runfiles in place of this test's own."""
    for name in ("RUNFILES_MANIFEST_FILE", "RUNFILES_MANIFEST_ONLY", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RUNFILES_DIR", str(tmp_path))
    (tmp_path / "_repo_mapping").write_text("")
    return tmp_path


def plant(runfiles: Path, name: str, mode: int = 0o700) -> Path:
    path = runfiles / "rankproof" / name
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return path


def test_both_programs(runfiles: Path) -> None:
    worker = plant(runfiles, "worker/worker")
    faulty = plant(runfiles, "simulation/faulty_worker")
    assert worker_program().argv == (str(worker),)
    assert faulty_worker_program().argv == (str(faulty),)
    assert faulty_worker_exists()


def test_a_build_without_them(runfiles: Path) -> None:
    with pytest.raises(TPError) as missing:
        worker_program()
    assert missing.value.code == "process.start"
    with pytest.raises(ConfigError) as refused:
        faulty_worker_program()
    assert [problem.field for problem in refused.value.problems] == ["fault"]
    assert not faulty_worker_exists()


def test_a_program_that_may_not_be_executed(runfiles: Path) -> None:
    plant(runfiles, "worker/worker", mode=0o600)
    with pytest.raises(TPError) as missing:
        worker_program()
    assert missing.value.code == "process.start"


@pytest.mark.parametrize("program", PROGRAMS)
def test_nothing_of_the_callers_own_reaches_a_worker(
    runfiles: Path, monkeypatch: pytest.MonkeyPatch, program: Callable[[], WorkerProgram]
) -> None:
    plant(runfiles, "worker/worker")
    plant(runfiles, "simulation/faulty_worker")
    for name in list(os.environ):
        if not name.startswith("RUNFILES"):
            monkeypatch.delenv(name)
    own = {"PATH": "/bin", "HOME": "/var/somebody", "TMPDIR": "/tmp/somewhere"}
    others = {"PYTHONPATH": "/planted", "SECRET": "s", "LC_ALL": "de_DE", "OMP_NUM_THREADS": "9"}
    for name, value in (own | others).items():
        monkeypatch.setenv(name, value)
    env = dict(program().env)
    assert own.items() <= env.items()
    assert env["LC_ALL"] == "C.UTF-8"
    assert env["OPENBLAS_NUM_THREADS"] == "1"
    assert env.keys() - own.keys() <= {"LC_ALL", "OPENBLAS_NUM_THREADS", "RUNFILES_DIR"} | {
        "JAVA_RUNFILES",
        "RUNFILES_MANIFEST_FILE",
    }


def test_without_any_runfiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.worker_program.Runfiles.Create", lambda: None)
    with pytest.raises(TPError):
        worker_program()
    assert not faulty_worker_exists()
