"""The built programs, started as a user would start them: for system tests.

Each has a temporary folder of its own, so that a test can see what is left in it.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runfiles import Runfiles

from coordinator.process_table import SLACK_S

COORDINATOR = "rankproof/coordinator/coordinator"
RELEASE = "rankproof/coordinator/release"
WORKER = "rankproof/worker/worker"


@dataclass(frozen=True)
class Finished:
    """How a program ended. code: as subprocess reports it, negative for a signal."""

    code: int
    out: str
    err: str


def program_path(runfile: str) -> str:
    """Where a built program is."""
    runfiles = Runfiles.Create()
    path = runfiles.Rlocation(runfile) if runfiles is not None else None
    if path is None:
        raise FileNotFoundError(runfile)
    return path


def environment(temporary: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A user's environment whose temporary folder is `temporary`."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return kept | {"TMPDIR": str(temporary)} | dict(extra or {})


@contextmanager
def started(
    command: Sequence[str], folder: Path, extra: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A running program with its temporary folder at `folder`/tmp; killed when it is left.

    It leads a process group of its own, as a shell would have it.
    """
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    process = subprocess.Popen(
        list(command),
        cwd=folder,
        env=environment(temporary, extra),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def coordinator(*arguments: str) -> list[str]:
    """A command line of the coordinator."""
    return [program_path(COORDINATOR), *arguments]


def worker(address: str, rank: int, *arguments: str) -> list[str]:
    """A command line of a worker."""
    return [program_path(WORKER), "--connect", address, "--rank", str(rank), *arguments]


def finish(process: subprocess.Popen[str]) -> Finished:
    """Wait for its end."""
    out, err = process.communicate(timeout=SLACK_S)
    return Finished(process.returncode, out, err)


def run_to_end(
    command: Sequence[str], folder: Path, extra: Mapping[str, str] | None = None
) -> Finished:
    """Start and wait."""
    with started(command, folder, extra) as process:
        return finish(process)


def left_behind(folder: Path) -> list[str]:
    """What is still in the temporary folder of programs started in `folder`."""
    return sorted(entry.name for entry in (folder / "tmp").iterdir())
