"""The built programs from the command line: what a user and a script see of a run."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.built_program import (
    WORKER,
    Finished,
    coordinator,
    left_behind,
    program_path,
    run_to_end,
    worker,
)
from coordinator.main import main
from coordinator.process_table import children, process_state
from coordinator.run_files import LEDGER, MANIFEST, OBSERVATIONS, OUTPUT, TAPE
from manifest.fields import FAULT_KINDS
from tools.python.tiers import mostly_exhaustive
from wire.canonical import decode_canonical

ALL = sorted([LEDGER, MANIFEST, OBSERVATIONS, OUTPUT, TAPE])
SMALL = ("--ranks", "2", "--batch", "1", "--sequence", "4", "--seed", "3")
# The evidence's rule: no frame could be read, it was not the agreed one, or nothing came.
FAULT_CODES = {
    "rank_exit": "protocol.closed",
    "truncated_frame": "protocol.truncated",
    "checksum_corruption": "protocol.checksum",
    "stale_epoch": "contract.epoch",
    "duplicate_sequence": "contract.sequence",
    "metadata_mismatch": "contract.metadata",
    "delay": "deadline.receive",
    "cancellation_race": "deadline.receive",
}
JSON_KEYS = {
    "ok",
    "ranks",
    "batch",
    "sequence",
    "seed",
    "sum_order",
    "payload_bytes",
    "payload_bytes_expected",
    "header_bytes",
    "metadata_bytes",
    "max_abs_error",
    "relative_l2_error",
    "output_sha256",
    "workers",
    "error",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where a program is called; not as deep as a test's own folder, because of sockets' paths."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def pids(out: Path) -> list[int]:
    lines = (out / OBSERVATIONS).read_bytes().splitlines()
    found = [decode_canonical(line).get("pid") for line in lines]
    return [pid for pid in found if isinstance(pid, int)]


def the_object(finished: Finished) -> dict[str, Any]:
    """Standard output is one JSON object on one line, and nothing else."""
    assert finished.out.endswith("\n")
    assert finished.out.count("\n") == 1
    document: dict[str, Any] = json.loads(finished.out)
    return document


@pytest.fixture(scope="module")
def recorded() -> Iterator[Path]:
    """The folder in which a run was called; its files are in out/."""
    with tempfile.TemporaryDirectory() as name:
        command = coordinator("run", *SMALL, "--sum-order", "pairwise", "--json")
        finished = run_to_end(command, Path(name))
        assert (finished.code, finished.err) == (0, "")
        (Path(name) / "stdout").write_text(finished.out)
        yield Path(name)


def test_a_script_gets_one_object(recorded: Path) -> None:
    document = the_object(Finished(0, (recorded / "stdout").read_text(), ""))
    assert document.keys() >= JSON_KEYS
    assert (document["ok"], document["error"]) == (True, None)
    assert (document["ranks"], document["sum_order"]) == (2, "pairwise")
    assert document["payload_bytes"] == document["payload_bytes_expected"] == 4 * 2 * (960 + 6 * 64)
    assert document["max_abs_error"] < 1e-6
    assert document["relative_l2_error"] < 1e-6
    output = (recorded / "out" / OUTPUT).read_bytes()
    assert document["output_sha256"] == hashlib.sha256(output).hexdigest()
    assert document["workers"] == [
        {"rank": rank, "frames_sent": 6, "frames_received": 13} for rank in range(2)
    ]


def test_what_a_run_leaves(recorded: Path) -> None:
    assert sorted(entry.name for entry in (recorded / "out").iterdir()) == ALL
    assert left_behind(recorded) == []
    assert [process_state(pid) for pid in pids(recorded / "out")] == [None, None]


def test_the_main_job(folder: Path) -> None:
    """Without any argument, and with the folder that `bazel run` was called in."""
    called = folder / "called"
    called.mkdir()
    finished = run_to_end(coordinator(), folder, {"BUILD_WORKING_DIRECTORY": str(called)})
    assert (finished.code, finished.err) == (0, "")
    assert finished.out.startswith("ok  block on 4 ranks, batch 2, sequence 7, seed 1")
    assert "29,184 bytes, as the formula says" in finished.out
    assert sorted(entry.name for entry in (called / "out").iterdir()) == ALL
    assert [process_state(pid) for pid in pids(called / "out")] == [None] * 4
    assert left_behind(folder) == []


def test_the_transport_changes_no_byte_of_the_output(recorded: Path, folder: Path) -> None:
    flags = (*SMALL, "--sum-order", "pairwise", "--transport", "tcp", "--json")
    finished = run_to_end(coordinator("run", *flags), folder)
    assert finished.code == 0
    for name in (OUTPUT, LEDGER, TAPE):
        assert (folder / "out" / name).read_bytes() == (recorded / "out" / name).read_bytes()


def test_a_manifest_says_what_flags_say(recorded: Path, folder: Path) -> None:
    text = 'ranks: 2 batch: 1 sequence: 4 seed: 3 sum_order: "pairwise"\n'
    (folder / "run.textproto").write_text(text)
    finished = run_to_end(coordinator("--manifest", "run.textproto", "--out", "o"), folder)
    assert (finished.code, finished.err) == (0, "")
    for name in (MANIFEST, OUTPUT, LEDGER):
        assert (folder / "o" / name).read_bytes() == (recorded / "out" / name).read_bytes()


FILTERS = {
    (): 38,
    ("--rank", "0"): 19,
    ("--direction", "receive"): 12,
    ("--kind", "WEIGHT"): 14,
    ("--phase", "mlp"): 6,
    ("--rank", "1", "--kind", "FENCE", "--phase", "mlp"): 1,
    ("--kind", "LOAD"): 0,
}


@pytest.mark.parametrize(("filters", "count"), FILTERS.items())
def test_the_ledger(
    recorded: Path, filters: tuple[str, ...], count: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ledger", str(recorded / "out"), *filters]) == 0
    *rows, total = capsys.readouterr().out.splitlines()
    assert len(rows) == count + 1
    assert total.startswith(f"{count} of 38 frames")


@pytest.mark.parametrize(
    "which", [["coordinator"], ["coordinator", "--rank", "1"], ["worker", "--rank", "1"]]
)
def test_replays(recorded: Path, which: list[str], folder: Path) -> None:
    finished = run_to_end(coordinator("replay", str(recorded / "out"), "--role", *which), folder)
    assert (finished.code, finished.err) == (0, "")
    assert "byte-identical" in finished.out
    assert left_behind(folder) == []


def test_a_replay_that_differs(recorded: Path, folder: Path) -> None:
    """Another seed's manifest beside the tape: the coordinator now sends other weights."""
    for name in (LEDGER, TAPE):
        (folder / name).write_bytes((recorded / "out" / name).read_bytes())
    text = (recorded / "out" / MANIFEST).read_text().replace('"seed":3', '"seed":4')
    (folder / MANIFEST).write_text(text)
    finished = run_to_end(coordinator("replay", ".", "--role", "coordinator"), folder)
    assert (finished.code, finished.err) == (1, "")


def test_the_table_has_every_fault() -> None:
    assert sorted(FAULT_CODES) == sorted(FAULT_KINDS)


@pytest.mark.parametrize(
    "kind",
    mostly_exhaustive(
        FAULT_CODES, lambda kind: kind in ("rank_exit", "checksum_corruption", "delay")
    ),
)
def test_planted_faults(
    kind: str,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each kind once, through main and the built worker that can have it."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("BUILD_WORKING_DIRECTORY", raising=False)
    fault = ("--fault", kind, "--fault-rank", "0", "--fault-phase", "mlp")
    waits = ("--phase-ms", "1000") if FAULT_CODES[kind].startswith("deadline") else ()
    assert main(["run", *SMALL, *fault, *waits, "--json"]) == 3
    captured = capsys.readouterr()
    document = the_object(Finished(3, captured.out, captured.err))
    found = [document["error"][key] for key in ("code", "rank", "phase")]
    assert found == [FAULT_CODES[kind], 0, "mlp"]
    # How the kernel told the end is its own affair.
    assert (document["error"]["errno"] is None) is (document["error"]["errno_name"] is None)
    assert (document["ok"], document["output_sha256"]) == (False, None)
    # Nothing of it is on standard output, so it is said for people on the other one.
    assert captured.err.startswith(FAULT_CODES[kind])
    assert sorted(entry.name for entry in Path("out").iterdir()) == [
        name for name in ALL if name != OUTPUT
    ]
    assert [process_state(pid) for pid in pids(Path("out"))] == [None, None]
    assert children() == set()


def test_versions_are_of_the_same_sources(folder: Path) -> None:
    ours = run_to_end(coordinator("--version"), folder)
    theirs = run_to_end([program_path(WORKER), "--version"], folder)
    assert ours.out.split()[1] == theirs.out.split()[1]


MISTAKES = {
    "no rank": ["--connect", "127.0.0.1:1"],
    "rank is not a number": ["--connect", "127.0.0.1:1", "--rank", "one"],
    "rank too large": ["--connect", "127.0.0.1:1", "--rank", "64"],
    "rank twice": ["--connect", "127.0.0.1:1", "--rank", "0", "--rank", "1"],
    "no port": ["--connect", "127.0.0.1", "--rank", "0"],
    "port 0": ["--connect", "127.0.0.1:0", "--rank", "0"],
    "unknown option": ["--connect", "127.0.0.1:1", "--rank", "0", "--fault", "delay"],
}


@pytest.mark.parametrize(
    "arguments",
    mostly_exhaustive(MISTAKES.values(), lambda arguments: arguments == MISTAKES["rank twice"]),
    ids=MISTAKES,
)
def test_mistakes_in_a_workers_command_line(arguments: list[str], folder: Path) -> None:
    finished = run_to_end([program_path(WORKER), *arguments], folder)
    assert (finished.code, finished.out) == (2, "")
    assert finished.err.count("\n") == 1
    assert "config." in finished.err


def test_a_worker_without_a_coordinator(folder: Path) -> None:
    finished = run_to_end(worker("unix:nobody", 5, "--connect-ms", "200"), folder)
    assert (finished.code, finished.out) == (3, "")
    assert finished.err.startswith("worker of rank 5: deadline.handshake")
    assert finished.err.count("\n") == 1
