"""The built coordinator when files cannot be written, workers cannot start, or nobody reads."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from coordinator.built_program import (
    RELEASE,
    coordinator,
    environment,
    finish,
    left_behind,
    program_path,
    run_to_end,
    started,
)
from coordinator.process_table import SLACK_S, children, is_running, wait_until
from coordinator.run_files import LEDGER, MANIFEST, OUTPUT, TAPE

SMALL = ("run", "--ranks", "1", "--batch", "1", "--sequence", "2")


def an_older_output(folder: Path) -> Path:
    out = folder / "out"
    out.mkdir()
    (out / OUTPUT).write_bytes(b"of an earlier run")
    return out


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    """The kernel's own answer: the ledger's place is taken by a device that is always full."""
    out = an_older_output(tmp_path)
    (out / (LEDGER + ".partial")).symlink_to("/dev/full")
    finished = run_to_end(coordinator(*SMALL, "--json"), tmp_path)
    assert finished.code == 1
    assert json.loads(finished.out)["error"]["code"] == "output.write"
    assert finished.err.startswith("coordinator: output.write: can't write ")
    assert finished.err.count("\n") == 1
    assert [entry.name for entry in out.iterdir()] == [MANIFEST]
    assert left_behind(tmp_path) == []


REFUSED = {
    "a file": "file",
    "below a file": "file/out",
    "not to be made": "/proc/rankproof/out",
    "not to be written": "/proc/self/task",
}


@pytest.mark.parametrize("out", REFUSED.values(), ids=REFUSED)
def test_a_folder_that_cannot_be(out: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    finished = run_to_end(coordinator(*SMALL, "--out", out), tmp_path)
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith("coordinator: config.invalid: --out = ")
    assert finished.err.count("\n") == 1
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_is_removed_during_the_run(tmp_path: Path) -> None:
    flags = ("--fault", "delay", "--fault-rank", "0", "--fault-phase", "mlp", "--phase-ms", "3000")
    with started(coordinator(*SMALL, *flags), tmp_path) as process:
        assert wait_until(lambda: len(children(process.pid)) == 1)
        pids = children(process.pid)
        (tmp_path / "out").rmdir()
        finished = finish(process)
        assert not any(is_running(pid) for pid in pids)
    assert (finished.code, finished.out) == (1, "")
    assert finished.err.startswith("coordinator: output.write: ")
    assert finished.err.count("\n") == 1


def test_a_standard_output_that_is_full(tmp_path: Path) -> None:
    (tmp_path / "tmp").mkdir()
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            coordinator(*SMALL, "--json"),
            cwd=tmp_path,
            env=environment(tmp_path / "tmp"),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SLACK_S,
            check=False,
        )
    assert process.returncode == 1
    assert process.stderr.startswith("coordinator: can't write standard output: ")
    assert process.stderr.count("\n") == 1


def test_a_reader_that_has_seen_enough(tmp_path: Path) -> None:
    """`coordinator ... | head -0`: no traceback, and the code that a shell expects."""
    with started(coordinator(*SMALL), tmp_path) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SLACK_S) == 141
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert (tmp_path / "out" / OUTPUT).exists()


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


def test_a_build_without_its_worker(tmp_path: Path) -> None:
    finished = run_to_end(broken_release(tmp_path, None), tmp_path)
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
def test_what_a_failing_worker_said_reaches_the_user(worker: str, tmp_path: Path) -> None:
    finished = run_to_end(broken_release(tmp_path, worker), tmp_path)
    assert finished.code == 3
    document = json.loads(finished.out)
    assert document["error"] == {"code": "protocol.closed", "rank": 0, "phase": "hello"}
    assert "rank 0 said last:" in finished.err
    assert "ImportError: no module of that name" in finished.err
    assert (tmp_path / "out" / TAPE).exists()
    assert left_behind(tmp_path) == []
