"""`run` over fake ranks that are real processes: the folder it leaves, and its exit code."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.command_run import RunBindings, RunReport, Verdict, run
from coordinator.fake_rank_process import fake_rank_launcher
from coordinator.options import RunOptions
from coordinator.process_table import children
from coordinator.processes import ExecLauncher, Launcher
from coordinator.recording import read_recording
from coordinator.run_files import LEDGER, MANIFEST, OBSERVATIONS, OUTPUT, TAPE
from coordinator.summary import OracleErrors, Traffic
from errors import TPError
from manifest.run_manifest import RunManifest, from_flags
from wire.canonical import decode_canonical

WITHOUT_OUTPUT = [LEDGER, MANIFEST, OBSERVATIONS, TAPE]
ALL = sorted([*WITHOUT_OUTPUT, OUTPUT])
ERRORS = OracleErrors(1e-7, 2e-7)


def content(output: bytes, manifest: RunManifest) -> Verdict:
    return Verdict(ERRORS, None)


def discontent(output: bytes, manifest: RunManifest) -> Verdict:
    return Verdict(ERRORS, TPError("oracle.gate", "too far from the reference"))


def script(text: str) -> ExecLauncher:
    return ExecLauncher((sys.executable, "-I", "-c", text), {})


def run_in(
    folder: Path,
    launcher: Launcher | None = None,
    judge: Callable[[bytes, RunManifest], Verdict] = content,
    **flags: str,
) -> RunReport:
    given = {"ranks": "2", "batch": "1", "sequence": "2", "deadlines.handshake_ms": "60000"}
    options = RunOptions(from_flags(given | flags), folder, json=False)
    ranks = launcher or fake_rank_launcher()
    return run(options, RunBindings(lambda manifest: ranks, judge, lambda address: None))


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """The folder of an earlier run, whose output must not survive a failure of this one."""
    folder = tmp_path / "out"
    folder.mkdir()
    for name in ALL:
        (folder / name).write_bytes(b"of an earlier run")
    before = children()
    yield folder
    assert children() == before
    assert not list(folder.glob("*.partial"))


def test_a_run_that_goes_well(out: Path) -> None:
    report = run_in(out)
    summary = report.summary
    assert (report.exit_code, summary.ok, summary.failure) == (0, True, None)
    assert summary.files == (MANIFEST, LEDGER, TAPE, OBSERVATIONS, OUTPUT)
    assert names(out) == ALL
    output = (out / OUTPUT).read_bytes()
    assert summary.output_sha256 == hashlib.sha256(output).hexdigest()
    assert (summary.oracle, summary.outputs_identical, summary.strangers) == (ERRORS, True, 0)
    assert summary.payload_bytes == summary.payload_bytes_expected
    for rank, worker in enumerate(summary.workers):
        assert (worker.rank, worker.exit_code) == (rank, 0)
        assert (worker.sent.frames, worker.received.frames) == (6, 13)
    total = sum(worker.sent.bytes + worker.received.bytes for worker in summary.workers)
    assert total == summary.payload_bytes + summary.header_bytes + summary.metadata_bytes
    recording = read_recording(out)
    assert recording.manifest == summary.manifest
    assert recording.output == output


def test_what_is_only_in_the_observations(out: Path) -> None:
    """Times, pids and addresses: two runs differ in nothing else."""
    run_in(out)
    first = {name: (out / name).read_bytes() for name in ALL}
    lines = [decode_canonical(line) for line in first[OBSERVATIONS].splitlines()]
    assert [line["event"] for line in lines] == ["run", "worker", "worker"]
    assert all(isinstance(line["pid"], int) for line in lines[1:])
    run_in(out)
    second = {name: (out / name).read_bytes() for name in ALL}
    assert [name for name in ALL if first[name] != second[name]] == [OBSERVATIONS]


def test_an_output_that_the_reference_refuses(out: Path) -> None:
    report = run_in(out, judge=discontent)
    assert report.exit_code == 1
    assert report.summary.failure is not None
    assert report.summary.failure.code == "oracle.gate"
    assert report.summary.oracle == ERRORS
    assert sorted(report.summary.files) == WITHOUT_OUTPUT
    assert names(out) == WITHOUT_OUTPUT


def test_a_worker_that_fails(out: Path) -> None:
    fails = "import sys, time; sys.argv[-1] == '0' and sys.exit('cannot find my weights')"
    report = run_in(out, script(fails + "; time.sleep(600)"))
    summary = report.summary
    assert report.exit_code == 3
    assert summary.failure is not None
    assert (summary.failure.code, summary.failure.rank) == ("protocol.closed", 0)
    assert "cannot find my weights" in summary.failure.sentence
    assert summary.workers[0].peer is None
    assert summary.workers[0].sent == Traffic()
    assert "cannot find my weights" in summary.workers[0].last_words
    assert names(out) == WITHOUT_OUTPUT


LEAVES_BADLY = """
import sys
from coordinator.fake_rank_process import main
main(sys.argv[1:])
sys.exit('could not say goodbye')
"""


def test_a_worker_that_leaves_badly_fails_the_run(out: Path) -> None:
    own = fake_rank_launcher()
    launcher = ExecLauncher((*own.argv[:1], "-c", LEAVES_BADLY), own.env)
    report = run_in(out, launcher, ranks="1")
    failure = report.summary.failure
    assert report.exit_code == 3
    assert failure is not None
    assert (failure.code, failure.rank, failure.phase) == ("protocol.closed", 0, "close")
    assert "could not say goodbye" in failure.sentence
    assert names(out) == WITHOUT_OUTPUT


def test_a_program_that_is_missing(out: Path) -> None:
    with pytest.raises(TPError) as failure:
        run_in(out, ExecLauncher(("/nowhere/worker",), {}))
    assert failure.value.code == "process.start"
    assert names(out) == []


@pytest.mark.parametrize("full", [MANIFEST, LEDGER, TAPE, OBSERVATIONS])
def test_a_full_disk(out: Path, full: str) -> None:
    """The kernel's own answer: the file's place is taken by a device that is always full."""
    (out / (full + ".partial")).symlink_to("/dev/full")
    with pytest.raises(TPError) as failure:
        run_in(out, ranks="1")
    assert failure.value.code == "output.write"
    assert str(out / full) in failure.value.message
    assert full not in names(out)
    assert OUTPUT not in names(out)


def test_a_disk_that_is_full_at_the_very_end(out: Path) -> None:
    """The output's place is made free before the run, so the device gets there during it."""

    def judge(output: bytes, manifest: RunManifest) -> Verdict:
        (out / (OUTPUT + ".partial")).symlink_to("/dev/full")
        return Verdict(ERRORS, None)

    with pytest.raises(TPError) as failure:
        run_in(out, judge=judge, ranks="1")
    assert failure.value.code == "output.write"
    assert names(out) == WITHOUT_OUTPUT


def test_external_workers_are_told_where(out: Path) -> None:
    """And are waited for no longer than the deadline."""
    told: list[str] = []
    flags = {"listen": "127.0.0.1:0", "external_workers": "true", "deadlines.handshake_ms": "200"}
    options = RunOptions(from_flags({"ranks": "1"} | flags), out, json=False)

    def launcher(manifest: RunManifest) -> Launcher:
        raise AssertionError("external workers are not started")

    report = run(options, RunBindings(launcher, content, told.append))
    (address,) = told
    assert address.startswith("tcp:127.0.0.1:")
    assert not address.endswith(":0")
    failure = report.summary.failure
    assert failure is not None
    assert (failure.code, failure.rank, failure.phase) == ("deadline.handshake", 0, "hello")
    assert report.summary.workers[0].peer is None
    assert names(out) == WITHOUT_OUTPUT
