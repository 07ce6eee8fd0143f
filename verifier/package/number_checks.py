"""The checks of a case that recompute its numbers, and its outcome."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from evidence.matrix import FAULT_CODES
from evidence.package import OUTPUT
from evidence.record import scientific
from oracle.block import ALARM, MAX_ABS_GATE, RELATIVE_L2_GATE, judge
from program.block import HIDDEN_SIZE, block_spec, input_payload, weight_payload
from verifier.package.arithmetic import computed, reduce_partials
from verifier.package.case_checks import predicted_metadata
from verifier.package.case_run import CaseFiles
from verifier.package.findings import Log
from verifier.package.script import Step
from wire.frame import Kind, encode
from wire.limits import HEADER_BYTES


def _floats(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def output_size(run: CaseFiles) -> int:
    """Bytes of `batch x sequence x 16` binary32 elements."""
    return 4 * run.case.batch * run.case.sequence * HIDDEN_SIZE


def check_output(run: CaseFiles, log: Log) -> None:
    """`case.output`: size, digest, finite values, and every rank's RESULT in the tape."""
    if run.case.fault is not None:
        return
    if run.output is None:
        log.found(run.problems.get(OUTPUT, f"{OUTPUT} is missing"))
        return
    log.compare("bytes of the output", len(run.output), output_size(run))
    if run.claim is not None:
        log.compare("output_sha256", run.claim["output_sha256"], run.digests[OUTPUT])
        log.compare("output_bytes", run.claim["output_bytes"], len(run.output))
    if len(run.output) % 4 == 0 and not all(map(math.isfinite, _floats(run.output))):
        log.found("a value is not finite")
    if run.records is not None:
        results = run.payloads(Kind.RESULT)
        for rank in range(run.case.ranks):
            if results.get(rank) != [run.output]:
                log.found(f"it is not the one RESULT of rank {rank} in the tape")


def check_error(run: CaseFiles, log: Log) -> None:
    """`case.error`: E7 recomputed from the output; gates and alarm."""
    if run.case.fault is not None or run.output is None or len(run.output) != output_size(run):
        return
    judged = judge(run.output, run.case.seed, run.case.batch, run.case.sequence)
    measured = {
        "max_abs_error": (judged.max_abs_error, MAX_ABS_GATE),
        "relative_l2_error": (judged.relative_l2_error, RELATIVE_L2_GATE),
    }
    for key, (value, gate) in measured.items():
        if run.claim is not None:
            log.compare(key, run.claim[key], scientific(value))
        if not value <= gate:
            log.found(f"{key} {scientific(value)} is above the gate {gate}")
        elif not value <= ALARM:
            log.found(f"{key} {scientific(value)} is above the alarm {ALARM}")


def check_tensors(run: CaseFiles, log: Log) -> None:
    """`case.tensors`: WEIGHT and INPUT payloads are the seeded tensors, cut by the rules."""
    case = run.case
    spec = block_spec(case.ranks)
    weights, inputs = run.payloads(Kind.WEIGHT), run.payloads(Kind.INPUT)
    operand = input_payload(case.seed, case.batch, case.sequence)
    for rank in range(case.ranks):
        for weight, payload in zip(spec.weights, weights.get(rank, []), strict=False):
            if payload != weight_payload(case.seed, weight, rank, case.ranks):
                log.found(f"weight {weight.name} of rank {rank} is not the seeded one")
        if any(payload != operand for payload in inputs.get(rank, [])):
            log.found(f"the input of rank {rank} is not the seeded one")


def check_reduction(run: CaseFiles, log: Log) -> None:
    """`case.reduction`: every REDUCTION is the sum of the tape's PARTIALs, bit for bit."""
    partials = run.payloads(Kind.PARTIAL)
    for rank, totals in run.payloads(Kind.REDUCTION).items():
        for stage, total in enumerate(totals):
            summands = [
                payload
                for each in range(run.case.ranks)
                for payload in partials.get(each, [])[stage : stage + 1]
            ]
            whole = len({len(summand) for summand in summands}) == 1 and not len(total) % 4
            if len(summands) != run.case.ranks or not whole:
                log.found(f"total {stage} of rank {rank} has no partial of every rank")
                continue
            wanted = reduce_partials(summands, run.case.sum_order)
            if total != wanted:
                log.found(f"total {stage} of rank {rank}: {first_element(total, wanted)}")


def check_arithmetic(run: CaseFiles, log: Log) -> None:
    """`case.arithmetic`: every PARTIAL and RESULT is what the seed gives, bit for bit."""
    exact = computed(run.case)
    for rank, partials in run.payloads(Kind.PARTIAL).items():
        for stage, payload in enumerate(partials[: len(exact.partials)]):
            of_ranks = exact.partials[stage]
            if rank < len(of_ranks) and payload != of_ranks[rank]:
                where = first_element(payload, of_ranks[rank])
                log.found(f"partial {stage} of rank {rank}: {where}")
    for rank, results in run.payloads(Kind.RESULT).items():
        for payload in results:
            if payload != exact.result:
                log.found(f"result of rank {rank}: {first_element(payload, exact.result)}")


def first_element(got: bytes, wanted: bytes) -> str:
    """Where two tensors of binary32 first differ, with both values."""
    if len(got) != len(wanted):
        return f"{len(got)} bytes, must be {len(wanted)}"
    pairs = enumerate(zip(_floats(got), _floats(wanted), strict=True))
    spelled = ((i, a.hex(), b.hex()) for i, (a, b) in pairs)
    return next((f"element {i} is {a}, must be {b}" for i, a, b in spelled if a != b), "a NaN")


def check_outcome(run: CaseFiles, log: Log) -> None:
    """`case.outcome`: what E7's fault table says, and the fault itself in the tape."""
    fault = run.case.fault
    code = FAULT_CODES[fault.kind] if fault else None
    if run.claim is not None:
        error = {"code": code, "phase": fault.phase, "rank": fault.rank} if fault else None
        log.compare("error", run.claim["error"], error)
        log.compare("outcome", run.claim["outcome"], code.split(".")[0] if code else "ok")
    if fault is None or run.records is None:
        return
    if run.output is not None:
        log.found(f"{OUTPUT} exists although the run failed")
    for problem in _place_problems(run):
        log.found(problem)


def _place_problems(run: CaseFiles) -> Iterator[str]:
    """What is wrong with the end of a fault case's tape."""
    fault, last = run.case.fault, run.script[-1]
    if fault is None:
        return
    if len(run.frames) != len(run.script):
        yield f"{len(run.frames)} records; {fault.kind} is found at record {len(run.script) - 1}"
        return
    entries = run.replayed.entries
    ended = (entries[-1].error, entries[-1].rank, entries[-1].phase, len(entries))
    wanted = (FAULT_CODES[fault.kind], fault.rank, fault.phase, len(run.script))
    if ended != wanted:
        yield f"code, rank, phase and records at the end are {ended}, must be {wanted}"
    if run.frames[-1].record.raw != faulty_bytes(run, last):
        yield f"the last record is not what {fault.kind} leaves of the frame"


def faulty_bytes(run: CaseFiles, step: Step) -> bytes:
    """What arrives of the frame `step` when the case's fault strikes it (E7)."""
    fault = run.case.fault
    if fault is None or fault.kind in ("rank_exit", "delay", "cancellation_race"):
        return b""
    exact = computed(run.case)
    stage = block_spec(run.case.ranks).phases.index(step.phase) if step.kind is Kind.PARTIAL else 0
    metadata = predicted_metadata(run, step)
    _, buffers = encode(
        step.kind,
        flags=0,
        epoch=step.epoch - (fault.kind == "stale_epoch"),
        sequence=step.sequence - (fault.kind == "duplicate_sequence"),
        metadata=metadata,
        payload=exact.partials[stage][step.rank] if step.kind is Kind.PARTIAL else exact.result,
    )
    frame = b"".join(buffers)
    if fault.kind == "truncated_frame":
        return frame[: HEADER_BYTES + (len(metadata) + 1) // 2]
    if fault.kind == "checksum_corruption":
        return frame[:-1] + bytes([frame[-1] ^ 1])
    return frame
