"""A signal while the program is being imported does what it would later."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from coordinator import start

# The signal comes in the middle of the import, from a finder that is asked for the program.
_RUN = """
import os, signal, sys
number, disposition = int(sys.argv[1]), sys.argv[2]
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "coordinator.main":
            os.kill(os.getpid(), number)
        return None
sys.meta_path.insert(0, Finder())
if disposition == "ignored":
    signal.signal(number, signal.SIG_IGN)
from runpy import run_module
sys.argv = [sys.argv[0], "--version"]
run_module("MODULE", run_name="__main__")
"""


def run(number: int, disposition: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", _RUN.replace("MODULE", start.__name__), str(number), disposition],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_during_the_imports_ends_with_its_code_and_one_sentence(number: int) -> None:
    ended = run(number, "default")
    assert (ended.returncode, ended.stdout) == (128 + number, "")
    assert ended.stderr.startswith("coordinator: run.interrupted: ")
    assert ended.stderr.count("\n") == 1


def test_an_ignored_signal_stays_ignored() -> None:
    ended = run(signal.SIGHUP, "ignored")
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("coordinator ")


@pytest.mark.parametrize("disposition", ["default", "ignored"])
def test_asking_for_stacks_ends_nothing(disposition: str) -> None:
    ended = run(signal.SIGUSR1, disposition)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.startswith("coordinator ")
