"""A worker killed or stopped at each place of the session, over real processes.

Every time: the rank and the phase are named, within the deadline, and nothing is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from coordinator.command_run import RunBindings, RunReport, Verdict, run
from coordinator.options import RunOptions
from coordinator.process_table import SLACK_S, children, process_state, wait_until
from coordinator.processes import ExecLauncher
from coordinator.run_files import LEDGER, MANIFEST, OBSERVATIONS, OUTPUT, TAPE
from coordinator.summary import OracleErrors
from manifest.run_manifest import RunManifest, from_flags
from simulation.halting_worker import PLACES
from tools.python.tiers import mostly_exhaustive
from wire.canonical import decode_canonical
from wire.ledger import read_ledger

# Short, and still many times what a rank needs for a phase on a busy machine.
PHASE_MS = 2_000
HANDSHAKE_MS = 3_000
# A worker that ends after HELLO is noticed where the coordinator reads from it next (S7).
NOTICED_IN = {place: place for place in PLACES if place != "close"} | {"load": "attention"}

# The handshake, both phases of the block and the end; a stopped worker costs a deadline.
ALWAYS = {("hello", "KILL"), ("attention", "KILL"), ("mlp", "STOP"), ("result", "KILL")}


def halting(rank: int, place: str, name: str) -> ExecLauncher:
    """Child processes import from where this one does."""
    argv = (sys.executable, "-m", "simulation.halting_worker")
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
    extra = ("--halt-rank", str(rank), "--halt-place", place, "--halt-signal", name)
    return ExecLauncher(argv, environment, extra)


def judge(output: bytes, manifest: RunManifest) -> Verdict:
    return Verdict(OracleErrors(0.0, 0.0), None)


def run_halting(folder: Path, launcher: ExecLauncher, flags: dict[str, str]) -> RunReport:
    deadlines = {
        "deadlines.phase_ms": str(PHASE_MS),
        "deadlines.handshake_ms": str(HANDSHAKE_MS),
        "deadlines.close_ms": "1000",
    }
    manifest = from_flags({"batch": "1", "sequence": "2"} | deadlines | flags)
    bindings = RunBindings(lambda _: launcher, judge, lambda address: None)
    return run(RunOptions(manifest, folder, json=False), bindings)


def pids(folder: Path) -> list[int]:
    """Of the workers, as the run's observations have them."""
    lines = (folder / OBSERVATIONS).read_bytes().splitlines()
    found = [decode_canonical(line).get("pid") for line in lines]
    return [pid for pid in found if isinstance(pid, int)]


def demand_nothing_left(folder: Path, ranks: int, temporary: Path) -> None:
    started = pids(folder)
    assert len(started) == ranks
    # Reaped as well: a zombie still has a state.
    assert [process_state(pid) for pid in started] == [None] * ranks
    assert children() == set()
    assert list(temporary.iterdir()) == []
    assert sorted(entry.name for entry in folder.iterdir()) == sorted(
        [MANIFEST, LEDGER, TAPE, OBSERVATIONS]
    )


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The temporary folder of the run, to see what is left in it; short enough for a socket."""
    with tempfile.TemporaryDirectory() as folder:
        monkeypatch.setattr("tempfile.tempdir", folder)
        yield Path(folder)


@pytest.mark.parametrize(
    ("place", "name"),
    mostly_exhaustive(product(NOTICED_IN, ["KILL", "STOP"]), lambda case: case in ALWAYS),
)
def test_halted(tmp_path: Path, temporary: Path, place: str, name: str) -> None:
    stopped = name == "STOP"
    code = "protocol.closed"
    if stopped:
        code = "deadline.handshake" if place == "hello" else "deadline.receive"
    out = tmp_path / "out"
    out.mkdir()
    (out / OUTPUT).write_bytes(b"an older run's")
    began = time.monotonic()
    report = run_halting(out, halting(0, place, name), {"ranks": "2"})
    failure = report.summary.failure
    assert failure is not None
    assert (failure.code, failure.rank, failure.phase) == (code, 0, NOTICED_IN[place])
    assert report.exit_code == 3
    assert time.monotonic() - began < (PHASE_MS + HANDSHAKE_MS) / 1000 + SLACK_S
    demand_nothing_left(out, 2, temporary)
    last = read_ledger((out / LEDGER).read_bytes())[-1]
    assert (last.error, last.rank, last.phase) == (code, 0, NOTICED_IN[place])


@pytest.mark.parametrize("name", ["KILL", pytest.param("STOP", marks=pytest.mark.exhaustive)])
def test_halted_after_the_session(tmp_path: Path, temporary: Path, name: str) -> None:
    """The conversation went well, but a worker that does not leave cleanly fails the run (S2)."""
    out = tmp_path / "out"
    report = run_halting(out, halting(1, "close", name), {"ranks": "2"})
    failure = report.summary.failure
    assert failure is not None
    assert (failure.code, failure.rank, failure.phase) == ("protocol.closed", 1, "close")
    assert (report.exit_code, report.summary.output_sha256) == (3, None)
    demand_nothing_left(out, 2, temporary)
    assert read_ledger((out / LEDGER).read_bytes())[-1].error is None


def test_the_last_of_four_ranks(tmp_path: Path, temporary: Path) -> None:
    """Whoever it is, it is named: here after three ranks have answered the phase."""
    out = tmp_path / "out"
    report = run_halting(out, halting(3, "mlp", "KILL"), {"ranks": "4"})
    failure = report.summary.failure
    assert failure is not None
    assert (failure.code, failure.rank, failure.phase) == ("protocol.closed", 3, "mlp")
    demand_nothing_left(out, 4, temporary)


@pytest.mark.exhaustive
def test_the_processor_is_left_alone_while_waiting(tmp_path: Path, temporary: Path) -> None:
    """Waiting for a stopped worker costs no processor time, and its end no retries."""
    before = time.process_time()
    report = run_halting(tmp_path / "out", halting(0, "attention", "STOP"), {"ranks": "1"})
    assert report.summary.failure is not None
    assert report.summary.elapsed_seconds > PHASE_MS / 1000
    assert time.process_time() - before < PHASE_MS / 1000 / 4


@pytest.mark.exhaustive
def test_continuing_a_stopped_worker_revives_nothing(tmp_path: Path, temporary: Path) -> None:
    """An external worker is not ours to kill; when it continues, it finds its session ended."""
    path = temporary / "s"
    launcher = halting(0, "attention", "STOP")
    argv = [*launcher.argv, "--connect", f"unix:{path}", "--rank", "0", *launcher.extra]
    worker = subprocess.Popen(argv, env=dict(launcher.env), stderr=subprocess.PIPE, text=True)
    flags = {"ranks": "1", "listen": f"unix:{path}", "external_workers": "true"}
    flags["deadlines.handshake_ms"] = str(int(SLACK_S * 1000))
    out = tmp_path / "out"
    report = run_halting(out, launcher, flags)
    failure = report.summary.failure
    assert failure is not None
    assert (failure.code, failure.rank, failure.phase) == ("deadline.receive", 0, "attention")
    state = process_state(worker.pid)
    assert state is not None
    assert state.letter == "T"
    names = sorted(entry.name for entry in out.iterdir())
    ledger = (out / LEDGER).read_bytes()
    worker.send_signal(signal.SIGCONT)
    _, said = worker.communicate(timeout=SLACK_S)
    assert worker.returncode == 3
    assert "protocol.closed" in said
    assert sorted(entry.name for entry in out.iterdir()) == names
    assert (out / LEDGER).read_bytes() == ledger
    assert wait_until(lambda: not path.exists())
