"""Running one case over real worker processes and a real socket."""

from __future__ import annotations

from coordinator.block_run import run_block
from coordinator.local_ranks import LocalRanks
from coordinator.processes import WorkerExit
from errors import EvidenceError
from evidence.fork_launcher import ForkLauncher
from evidence.matrix import FAULT_CODES, FIRST_EPOCH, Case
from evidence.record import CaseRun
from manifest.run_manifest import RunManifest, from_flags
from simulation.faulty_worker import main as faulty_worker
from wire.recorder import Recorder
from worker.main import main as worker

# A case that must time out waits this long for the faulty rank, and so for every other one: far
# more than a rank needs, which is tens of milliseconds, on a machine that does much else too.
TIMEOUT_CASE_PHASE_MS = 3_000
PHASE_MS = 30_000


def case_manifest(case: Case) -> RunManifest:
    """The run manifest of a case."""
    expected = FAULT_CODES[case.fault.kind] if case.fault else ""
    phase_ms = TIMEOUT_CASE_PHASE_MS if expected.startswith("deadline") else PHASE_MS
    return from_flags(
        {
            "ranks": str(case.ranks),
            "batch": str(case.batch),
            "sequence": str(case.sequence),
            "seed": str(case.seed),
            "sum_order": case.sum_order,
            "epoch": str(FIRST_EPOCH),
            "deadlines.phase_ms": str(phase_ms),
        }
    )


def case_launcher(case: Case) -> ForkLauncher:
    """Ordinary workers, or workers one of which has the case's fault."""
    fault = case.fault
    if fault is None:
        return ForkLauncher(worker)
    extra = ("--fault", fault.kind, "--fault-rank", str(fault.rank), "--fault-phase", fault.phase)
    return ForkLauncher(faulty_worker, (*extra, "--ranks", str(case.ranks)))


def run_case(case: Case) -> CaseRun:
    """Run the case once. Raises EvidenceError when it did not end as such a case must end."""
    recorder = Recorder(keep_bytes=True)
    manifest = case_manifest(case)
    with LocalRanks(manifest, case_launcher(case)) as ranks:
        outcome = run_block(manifest, lambda recorder: ranks.connect(recorder).links, recorder)
        exits = ranks.stop(0 if outcome.failure else manifest.deadlines.close_ms)
    if outcome.failure is None:
        _check_clean_exits(case, exits)
    run = CaseRun(
        case=case,
        entries=tuple(recorder.entries()),
        ledger=recorder.ledger(),
        tape=recorder.tape(),
        output=outcome.output,
        failure=outcome.failure,
    )
    check_outcome(run)
    return run


def check_outcome(run: CaseRun) -> None:
    """A clean case has an output; a fault case ends as docs/spec/evidence.md's table says."""
    case, failure = run.case, run.failure
    if case.fault is None:
        if failure is not None:
            raise EvidenceError("case.outcome", failure.diagnostics(), case_id=case.case_id)
        return
    found = (failure.code, failure.rank, failure.phase) if failure else None
    agreed = (FAULT_CODES[case.fault.kind], case.fault.rank, case.fault.phase)
    if found != agreed or run.output is not None:
        detail = failure.diagnostics() if failure else "the run ended cleanly"
        raise EvidenceError("case.outcome", f"{detail}; agreed {agreed}", case_id=case.case_id)


def _check_clean_exits(case: Case, exits: list[WorkerExit]) -> None:
    for worker_exit in exits:
        if worker_exit.status != 0:
            raise EvidenceError(
                "case.outcome",
                f"rank {worker_exit.rank} ended with {worker_exit.status} after a clean run: "
                f"{worker_exit.last_words}",
                case_id=case.case_id,
            )
