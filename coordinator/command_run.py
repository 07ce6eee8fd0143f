"""The `run` subcommand: one run of the block over worker processes, its files and its summary."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from coordinator.block_run import BlockOutcome, run_block
from coordinator.local_ranks import LocalRanks
from coordinator.options import RunOptions
from coordinator.processes import Launcher, WorkerExit
from coordinator.run_files import LEDGER, MANIFEST, OBSERVATIONS, OUTPUT, TAPE, RunFiles
from coordinator.summary import Failure, OracleErrors, RunSummary, Traffic, WorkerSummary
from errors import ProtocolError, TPError
from manifest.run_manifest import RunManifest
from program.block import block_payload_bytes
from wire.canonical import JsonValue
from wire.ledger import SEND, Entry
from wire.limits import HEADER_BYTES
from wire.recorder import Recorder

CLOSE_PHASE = "close"


@dataclass(frozen=True)
class Verdict:
    """What the reference says of an output. failure: why it does not pass, or None."""

    errors: OracleErrors
    failure: TPError | None


@dataclass(frozen=True)
class RunBindings:
    """What the composition root provides: how workers start, and who judges the output.

    waiting: called with the address once external workers can connect to it.
    """

    launcher: Callable[[RunManifest], Launcher]
    judge: Callable[[bytes, RunManifest], Verdict]
    waiting: Callable[[str], None]


@dataclass(frozen=True)
class _Finished:
    outcome: BlockOutcome
    exits: Sequence[WorkerExit]
    pids: dict[int, int]
    address: str
    strangers: int
    elapsed_s: float


@dataclass(frozen=True)
class RunReport:
    """What to print, and the exit code that goes with it."""

    summary: RunSummary
    exit_code: int


def run(options: RunOptions, bindings: RunBindings) -> RunReport:
    """Run the block and leave its files in `options.out`.

    A failed conversation is part of the summary. Raises ConfigError before any process starts, and
    TPError when a file can't be written; then no output file exists.
    """
    manifest = options.manifest
    files = RunFiles(options.out)
    recorder = Recorder(keep_bytes=True)
    finished = _run_ranks(manifest, bindings, recorder)
    outcome = finished.outcome
    files.write(MANIFEST, manifest.to_json_bytes())
    files.write(LEDGER, recorder.ledger())
    files.write(TAPE, recorder.tape())
    files.write_observations(_observations(manifest, finished))
    written = [MANIFEST, LEDGER, TAPE, OBSERVATIONS]
    errors: OracleErrors | None = None
    failure: TPError | None = outcome.failure
    if outcome.output is not None:
        verdict = bindings.judge(outcome.output, manifest)
        errors, failure = verdict.errors, verdict.failure
    if outcome.output is not None and failure is None:
        files.write(OUTPUT, outcome.output)
        written.append(OUTPUT)
    summary = _summary(options, finished, recorder, errors, failure)
    summary = replace(summary, files=tuple(written))
    return RunReport(summary, failure.exit_code if failure is not None else 0)


def _run_ranks(manifest: RunManifest, bindings: RunBindings, recorder: Recorder) -> _Finished:
    started = time.monotonic()
    launcher = None if manifest.external_workers else bindings.launcher(manifest)
    with LocalRanks(manifest, launcher) as ranks:
        if launcher is None:
            bindings.waiting(ranks.address)
        outcome = run_block(manifest, lambda recorder: ranks.connect(recorder).links, recorder)
        exits = ranks.stop(0 if outcome.failure else manifest.deadlines.close_ms)
    if outcome.failure is None:
        outcome = _checked_exits(outcome, exits)
    elapsed_s = time.monotonic() - started
    return _Finished(outcome, exits, ranks.pids, ranks.address, ranks.strangers, elapsed_s)


def _checked_exits(outcome: BlockOutcome, exits: Sequence[WorkerExit]) -> BlockOutcome:
    """A clean run whose worker does not leave cleanly is a failed run (session.md S2)."""
    for worker in exits:
        if worker.status != 0:
            how = "had to be killed" if worker.killed else f"ended with {worker.status}"
            message = f"its process {how} after the session: {worker.last_words}"
            failure = ProtocolError("closed", message, rank=worker.rank, phase=CLOSE_PHASE)
            return BlockOutcome(None, failure)
    return outcome


def _observations(manifest: RunManifest, finished: _Finished) -> list[dict[str, JsonValue]]:
    failure = finished.outcome.failure
    run: dict[str, JsonValue] = {
        "address": finished.address,
        "elapsed_us": int(finished.elapsed_s * 1e6),
        # The kernel's choice, so it is no part of the ledger (session.md S7).
        "errno": None if failure is None else failure.errno,
        "event": "run",
        "finished_unix_ms": time.time_ns() // 1_000_000,
        "strangers": finished.strangers,
    }
    workers: list[dict[str, JsonValue]] = [
        {
            "event": "worker",
            "exit_status": worker.status,
            "killed": worker.killed,
            "last_words": worker.last_words,
            "pid": worker.pid,
            "rank": worker.rank,
        }
        for worker in finished.exits
    ]
    return [run, *workers]


def _traffic(entries: Sequence[Entry], rank: int, *, sent_by_worker: bool) -> Traffic:
    frames = [
        entry
        for entry in entries
        if entry.rank == rank
        and entry.flags is not None
        and (entry.direction == SEND) is not sent_by_worker
    ]
    size = sum(
        HEADER_BYTES + (entry.metadata_bytes or 0) + (entry.payload_bytes or 0) for entry in frames
    )
    return Traffic(len(frames), size)


def _worker(rank: int, finished: _Finished, entries: Sequence[Entry]) -> WorkerSummary:
    exits = {worker.rank: worker for worker in finished.exits}
    sent = _traffic(entries, rank, sent_by_worker=True)
    pid = finished.pids.get(rank)
    peer = f"pid {pid}" if pid is not None else "external"
    worker = exits.get(rank)
    return WorkerSummary(
        rank=rank,
        peer=peer if sent.frames else None,
        sent=sent,
        received=_traffic(entries, rank, sent_by_worker=False),
        exit_code=worker.status if worker is not None else None,
        last_words=worker.last_words if worker is not None else "",
    )


def _summary(
    options: RunOptions,
    finished: _Finished,
    recorder: Recorder,
    errors: OracleErrors | None,
    failure: TPError | None,
) -> RunSummary:
    manifest, output, entries = options.manifest, finished.outcome.output, recorder.entries()
    totals = recorder.totals()
    expected = block_payload_bytes(manifest.ranks, manifest.batch, manifest.sequence)
    return RunSummary(
        manifest=manifest,
        payload_bytes=totals.payload_bytes,
        payload_bytes_expected=expected,
        header_bytes=totals.header_bytes,
        metadata_bytes=totals.metadata_bytes,
        workers=tuple(_worker(rank, finished, entries) for rank in range(manifest.ranks)),
        elapsed_seconds=finished.elapsed_s,
        oracle=errors,
        # The group refuses a RESULT that differs from rank 0's, so an output implies identity.
        outputs_identical=True if output is not None else None,
        output_sha256=hashlib.sha256(output).hexdigest() if output is not None else None,
        strangers=finished.strangers,
        out_dir=str(options.out),
        failure=Failure.of(failure) if failure is not None else None,
    )
