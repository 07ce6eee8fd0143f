"""The release: it plants no faults; and releases that are broken, in whole or in their worker."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.built_program import RELEASE, left_behind, program_path, run_to_end
from coordinator.run_files import OUTPUT, TAPE

SMALL = ("run", "--ranks", "1", "--batch", "1", "--sequence", "2")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a program is called; not as deep as a test's own folder, because of sockets' paths."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def test_a_release_runs(folder: Path) -> None:
    finished = run_to_end([program_path(RELEASE), *SMALL, "--json"], folder)
    assert (finished.code, finished.err) == (0, "")
    assert json.loads(finished.out)["ok"] is True
    assert (folder / "out" / OUTPUT).exists()


def test_a_release_plants_no_faults(folder: Path) -> None:
    fault = ("--fault", "delay", "--fault-rank", "0", "--fault-phase", "mlp")
    finished = run_to_end([program_path(RELEASE), *SMALL, *fault], folder)
    assert (finished.code, finished.out) == (2, "")
    assert "fault" in finished.err
    assert not (folder / "out").exists()
    shown = run_to_end([program_path(RELEASE), "run", "--help"], folder)
    assert "--fault" not in shown.out


def broken_release(folder: Path, worker: str | None) -> list[str]:
    """The release, with links to everything it needs, and this text as its worker."""
    ours, theirs = folder / "release.runfiles", Path(program_path(RELEASE))
    source = Path(os.environ["RUNFILES_DIR"])
    ours.mkdir()
    for entry in source.iterdir():
        if entry.name != "rankproof":
            (ours / entry.name).symlink_to(entry.resolve())
    (ours / "rankproof").mkdir()
    for entry in (source / "rankproof").iterdir():
        if entry.name != "worker":
            (ours / "rankproof" / entry.name).symlink_to(entry.resolve())
    if worker is not None:
        (ours / "rankproof" / "worker").mkdir()
        planted = ours / "rankproof" / "worker" / "worker"
        planted.write_text(worker)
        planted.chmod(0o700)
    program = folder / "release"
    program.symlink_to(theirs.resolve())
    return [str(program), *SMALL, "--json"]


def test_a_build_without_its_worker(folder: Path) -> None:
    finished = run_to_end(broken_release(folder, None), folder)
    assert finished.code == 1
    assert json.loads(finished.out)["error"]["code"] == "process.start"
    assert finished.err.startswith("coordinator: process.start: ")
    assert finished.err.count("\n") == 1


WORKERS = {
    "crashes at import": "#!/bin/sh\necho 'ImportError: no module of that name' >&2\nexit 1\n",
    "says much": "#!/bin/sh\nyes 'nothing new' | head -c 3000000 >&2\n"
    "echo 'ImportError: no module of that name' >&2\nexit 1\n",
}


@pytest.mark.parametrize("worker", WORKERS.values(), ids=WORKERS)
def test_what_a_failing_worker_said_reaches_the_user(worker: str, folder: Path) -> None:
    finished = run_to_end(broken_release(folder, worker), folder)
    assert finished.code == 3
    document = json.loads(finished.out)
    assert document["error"] == {
        "code": "protocol.closed",
        "rank": 0,
        "phase": "hello",
        "errno": None,
        "errno_name": None,
    }
    assert "rank 0 said last:" in finished.err
    assert "ImportError: no module of that name" in finished.err
    assert (folder / "out" / TAPE).exists()
    assert left_behind(folder) == []
