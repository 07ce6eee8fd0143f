"""The built coordinator when files cannot be written, workers cannot start, or nobody reads."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.built_program import (
    coordinator,
    environment,
    finish,
    left_behind,
    run_to_end,
    started,
)
from coordinator.process_table import SLACK_S, children, is_running, wait_until
from coordinator.run_files import LEDGER, MANIFEST, OUTPUT
from tools.python.tiers import mostly_exhaustive

SMALL = ("run", "--ranks", "1", "--batch", "1", "--sequence", "2")


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a program is called; not as deep as a test's own folder, because of sockets' paths."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def an_older_output(folder: Path) -> Path:
    out = folder / "out"
    out.mkdir()
    (out / OUTPUT).write_bytes(b"of an earlier run")
    return out


def test_a_disk_that_is_full(folder: Path) -> None:
    """The kernel's own answer: the ledger's place is taken by a device that is always full."""
    out = an_older_output(folder)
    (out / (LEDGER + ".partial")).symlink_to("/dev/full")
    finished = run_to_end(coordinator(*SMALL, "--json"), folder)
    assert finished.code == 1
    assert json.loads(finished.out)["error"]["code"] == "output.write"
    assert finished.err.startswith("coordinator: output.write: can't write ")
    assert finished.err.count("\n") == 1
    assert [entry.name for entry in out.iterdir()] == [MANIFEST]
    assert left_behind(folder) == []


REFUSED = {
    "a file": "file",
    "below a file": "file/out",
    "not to be made": "/proc/rankproof/out",
    "not to be written": "/proc/self/task",
}


@pytest.mark.parametrize(
    "out", mostly_exhaustive(REFUSED.values(), lambda out: out == "/proc/self/task"), ids=REFUSED
)
def test_a_folder_that_cannot_be(out: str, folder: Path) -> None:
    (folder / "file").write_text("mine")
    finished = run_to_end(coordinator(*SMALL, "--out", out), folder)
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.startswith("coordinator: config.invalid: --out = ")
    assert finished.err.count("\n") == 1
    assert (folder / "file").read_text() == "mine"


@pytest.mark.exhaustive
def test_a_folder_that_is_removed_during_the_run(folder: Path) -> None:
    flags = ("--fault", "delay", "--fault-rank", "0", "--fault-phase", "mlp", "--phase-ms", "3000")
    with started(coordinator(*SMALL, *flags), folder) as process:
        assert wait_until(lambda: len(children(process.pid)) == 1)
        pids = children(process.pid)
        (folder / "out").rmdir()
        finished = finish(process)
        assert not any(is_running(pid) for pid in pids)
    assert (finished.code, finished.out) == (1, "")
    assert finished.err.startswith("coordinator: output.write: ")
    assert finished.err.count("\n") == 1


def test_a_standard_output_that_is_full(folder: Path) -> None:
    (folder / "tmp").mkdir()
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            coordinator(*SMALL, "--json"),
            cwd=folder,
            env=environment(folder / "tmp"),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=SLACK_S,
            check=False,
        )
    assert process.returncode == 1
    assert process.stderr.startswith("coordinator: can't write standard output: ")
    assert process.stderr.count("\n") == 1


def test_a_reader_that_has_seen_enough(folder: Path) -> None:
    """`coordinator ... | head -0`: no traceback, and the code that a shell expects."""
    with started(coordinator(*SMALL), folder) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(SLACK_S) == 141
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert (folder / "out" / OUTPUT).exists()
