"""The checks of a case that recompute its numbers, and its outcome."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterator

import arithmetic
import block
import reference
import tensors
from bundle import difference
from case_checks import expected_metadata
from findings import Log
from frames import HEADER, write_frame
from ledger import Step
from matrix import FAULT_KINDS
from package import case_path
from run import Run

GATE = 2e-5
ALARM = 1e-6


def check_tensors(run: Run, log: Log) -> None:
    """`case.tensors`: WEIGHT and INPUT payloads are the regenerated tensors, cut by its rules."""
    case = run.case
    weights = run.payloads("WEIGHT")
    inputs = run.payloads("INPUT")
    operand = tensors.operand(case.seed, case.tokens)
    for rank in range(case.ranks):
        for (name, _), got in zip(
            block.local_shapes(case.ranks), weights.get(rank, []), strict=False
        ):
            log.count()
            if got != tensors.local_weight(case.seed, case.ranks, rank, name):
                log.found(f"weight {name} of rank {rank} is not the seeded one", run.name)
        for got in inputs.get(rank, []):
            log.count()
            if got != operand:
                log.found(f"input of rank {rank} is not the seeded one", run.name)


def check_reduction(run: Run, log: Log) -> None:
    """`case.reduction`: every REDUCTION is the sum of the PARTIALs, in order, bit for bit."""
    case = run.case
    partials = run.payloads("PARTIAL")
    for rank, totals in run.payloads("REDUCTION").items():
        for stage, got in enumerate(totals):
            parts = [partials.get(each, [])[stage : stage + 1] for each in range(case.ranks)]
            whole = [part[0] for part in parts if part]
            if len(whole) != case.ranks:
                log.found(
                    f"reduction {stage} of rank {rank} has no {case.ranks} partials", run.name
                )
                continue
            log.count()
            wanted = arithmetic.reduce_partials(whole, case.sum_order)
            if got != wanted:
                where = _first_element(got, wanted)
                log.found(f"{block.PHASES[stage]} total for rank {rank}: {where}", run.name)


def check_arithmetic(run: Run, log: Log) -> None:
    """`case.arithmetic`: every PARTIAL and RESULT recomputed from the seed, bit for bit."""
    case = run.case
    wanted = arithmetic.run(case.seed, case.ranks, case.batch, case.sequence, case.sum_order)
    for rank, parts in run.payloads("PARTIAL").items():
        for phase, got in zip(block.PHASES, parts, strict=False):
            log.count()
            if got != wanted.partials[phase][rank]:
                where = _first_element(got, wanted.partials[phase][rank])
                log.found(f"{phase} partial of rank {rank}: {where}", run.name)
    for rank, results in run.payloads("RESULT").items():
        for got in results:
            log.count()
            if got != wanted.result:
                log.found(f"result of rank {rank}: {_first_element(got, wanted.result)}", run.name)


def _first_element(got: bytes, wanted: bytes | None) -> str:
    """Index and both values of the first differing binary32 element."""
    if wanted is None:
        return "the partials have no sum: lengths differ, or a value is out of range"
    if len(got) != len(wanted):
        return f"{len(got)} bytes, recomputed {len(wanted)}"
    for at in range(0, len(got), 4):
        if got[at : at + 4] != wanted[at : at + 4]:
            pair = [struct.unpack_from("<f", data, at)[0] for data in (got, wanted)]
            return f"element {at // 4} is {pair[0]!r}, recomputed {pair[1]!r}"
    return "equal"


def check_output(run: Run, log: Log) -> None:
    """`case.output`: size, digest, finite values; equal to the RESULT of every rank in the tape."""
    case, output = run.case, run.output
    if case.fault is not None:
        return
    if output is None:
        log.found("no output", run.name)
        return
    log.count()
    size = 4 * block.HIDDEN * case.tokens
    if len(output) != size:
        log.found(f"output has {len(output)} bytes, not {size}", run.name)
    elif not all(map(math.isfinite, _floats(output))):
        log.found("output has a value that is not finite", run.name)
    if run.claim is not None:
        digest = hashlib.sha256(output).hexdigest()
        for key, value in (("output_sha256", digest), ("output_bytes", len(output))):
            fault = difference(key, run.claim.get(key), value)
            if fault is not None:
                log.found(fault, run.name)
    if run.tape_fault is None:
        results = run.payloads("RESULT")
        for rank in range(case.ranks):
            if results.get(rank) != [output]:
                log.found(f"output is not the one result of rank {rank} in the tape", run.name)


def check_error(run: Run, log: Log) -> None:
    """`case.error`, E7: both errors against the float64 reference; gates and alarm."""
    case, output = run.case, run.output
    if case.fault is not None or output is None or len(output) != 4 * block.HIDDEN * case.tokens:
        return
    log.count()
    wanted = reference.block(case.seed, case.batch, case.sequence)
    largest, relative = _errors(_floats(output), wanted)
    for key, value in (("max_abs_error", largest), ("relative_l2_error", relative)):
        recorded = None if run.claim is None else run.claim.get(key)
        fault = None if run.claim is None else difference(key, recorded, f"{value:.3e}")
        if fault is not None:
            log.found(fault, run.name)
        if not value <= GATE:
            log.found(f"{key} {value:.3e} is above the gate {GATE}", run.name)
        elif not value <= ALARM:
            log.found(f"{key} {value:.3e} is above the alarm {ALARM}", run.name)


def _floats(data: bytes) -> tuple[float, ...]:
    return struct.unpack(f"<{len(data) // 4}f", data)


def _errors(output: tuple[float, ...], wanted: tuple[float, ...]) -> tuple[float, float]:
    """E7; NaN where the output has a value that is not finite."""
    if not all(map(math.isfinite, output)):
        return math.nan, math.nan
    offsets = [got - want for got, want in zip(output, wanted, strict=True)]
    largest = max(map(abs, offsets))
    return largest, math.sqrt(_squares(offsets)) / math.sqrt(_squares(wanted))


def _squares(values: list[float] | tuple[float, ...]) -> float:
    return math.fsum(value * value for value in values)


def check_outcome(run: Run, log: Log) -> None:
    """`case.outcome`: as the fault table says, the fault in the tape and no output; or clean."""
    log.count()
    for problem in _outcome_problems(run):
        log.found(problem, run.name)


def _outcome_problems(run: Run) -> Iterator[str]:
    case = run.case
    if run.claim is not None:
        for key, value in (("outcome", case.outcome), ("error", case.error())):
            fault = difference(key, run.claim.get(key), value)
            if fault is not None:
                yield fault
    if case.fault is not None and run.output is not None:
        yield f"{case_path(case.name, 'output.f32')} exists although the case failed"
    if run.tape_fault is not None:
        return
    for index, turn in enumerate(run.turns):
        if turn.refusal is not None and (case.fault is None or index != len(run.steps) - 1):
            yield f"record {index} is refused with {turn.refusal}, where nothing fails"
    if case.fault is None:
        return
    if len(run.turns) != len(run.steps):
        yield f"{len(run.turns)} records, the fault is detected at index {len(run.steps) - 1}"
        return
    turn, step, code = run.turns[-1], run.steps[-1], FAULT_KINDS[case.fault.kind].code
    if turn.refusal != code or turn.record.rank != case.fault.rank:
        got = f"{turn.refusal} of rank {turn.record.rank}"
        yield f"ends with {got}, not {code} of rank {case.fault.rank}"
    wanted = faulty_bytes(run, step)
    if turn.record.data != wanted:
        yield f"the last record is not what a {case.fault.kind} leaves of the frame"


def faulty_bytes(run: Run, step: Step) -> bytes:
    """What arrives of the frame `step` when the case's fault happens to it (the fault table)."""
    case = run.case
    if case.fault is None:
        raise ValueError(f"{case.name} has no fault")
    kind = case.fault.kind
    if kind in ("rank_exit", "delay", "cancellation_race"):
        return b""
    exact = arithmetic.run(case.seed, case.ranks, case.batch, case.sequence, case.sum_order)
    payload = exact.result if step.kind == "RESULT" else exact.partials[step.phase][case.fault.rank]
    metadata = expected_metadata(run, step)
    frame = write_frame(
        step.kind,
        step.epoch - (kind == "stale_epoch"),
        step.sequence - (kind == "duplicate_sequence"),
        metadata,
        payload,
    )
    if kind == "truncated_frame":
        return frame[: HEADER.size + (len(metadata) + 1) // 2]
    if kind == "checksum_corruption":
        return frame[:-1] + bytes([frame[-1] ^ 1])
    return frame
