"""From a finished run to its line in cases.jsonl (docs/spec/evidence.md E5 to E7)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from errors import EvidenceError, PeerError
from evidence.matrix import FIRST_EPOCH, Case
from oracle.block import Judgement, judge
from program.block import block_spec
from program.digest import program_digest
from wire.canonical import JsonObject, encode_canonical
from wire.ledger import RECEIVE, SEND, Entry, totals


@dataclass(frozen=True)
class CaseRun:
    """What one run of a case left: its ledger and tape, and an output or a failure."""

    case: Case
    entries: tuple[Entry, ...]
    ledger: bytes
    tape: bytes
    output: bytes | None
    failure: PeerError | None


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def scientific(value: float) -> str:
    """The number form of E1."""
    return f"{value:.3e}"


def fault_object(case: Case) -> JsonObject | None:
    fault = case.fault
    if fault is None:
        return None
    return {"kind": fault.kind, "phase": fault.phase, "rank": fault.rank}


def run_identity(case: Case) -> str:
    """E6."""
    return sha256_hex(
        encode_canonical(
            {
                "batch": case.batch,
                "case": case.case_id,
                "epoch": FIRST_EPOCH,
                "fault": fault_object(case),
                "program_digest": program_digest(block_spec(case.ranks)),
                "ranks": case.ranks,
                "seed": case.seed,
                "sequence": case.sequence,
                "sum_order": case.sum_order,
            }
        )
    )


def _judged(run: CaseRun) -> Judgement | None:
    """The output against the oracle; a failed gate or alarm is no evidence but an error."""
    if run.output is None:
        return None
    case = run.case
    judgement = judge(run.output, case.seed, case.batch, case.sequence)
    if not judgement.passed or judgement.alarm:
        raise EvidenceError(
            "case.error",
            f"max abs {judgement.max_abs_error}, relative L2 {judgement.relative_l2_error}",
            case_id=case.case_id,
        )
    return judgement


def _frames(run: CaseRun, direction: str) -> int:
    return sum(entry.direction == direction and entry.flags is not None for entry in run.entries)


def case_record(run: CaseRun) -> JsonObject:
    """One line of cases.jsonl. Raises EvidenceError when the output fails the oracle's gates."""
    case, failure, judgement = run.case, run.failure, _judged(run)
    sums = totals(run.entries)
    error: JsonObject | None = None
    if failure is not None:
        error = {"code": failure.code, "phase": failure.phase, "rank": failure.rank}
    return {
        "batch": case.batch,
        "case": case.case_id,
        "epoch": FIRST_EPOCH,
        "error": error,
        "fault": fault_object(case),
        "frames_received": _frames(run, RECEIVE),
        "frames_sent": _frames(run, SEND),
        "header_bytes": sums.header_bytes,
        "ledger_sha256": sha256_hex(run.ledger),
        "max_abs_error": scientific(judgement.max_abs_error) if judgement else None,
        "metadata_bytes": sums.metadata_bytes,
        "outcome": failure.family if failure is not None else "ok",
        "output_bytes": len(run.output) if run.output is not None else None,
        "output_sha256": sha256_hex(run.output) if run.output is not None else None,
        "payload_bytes": sums.payload_bytes,
        "ranks": case.ranks,
        "relative_l2_error": scientific(judgement.relative_l2_error) if judgement else None,
        "run_identity": run_identity(case),
        "seed": case.seed,
        "sequence": case.sequence,
        "sum_order": case.sum_order,
        "tape_sha256": sha256_hex(run.tape),
    }
