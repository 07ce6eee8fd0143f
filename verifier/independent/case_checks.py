"""The checks of a case on identity, tape, ledger, session, metadata and accounting."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import zip_longest

import block
import canonical
import ledger
from bundle import difference
from findings import Log, shown
from ledger import Step, Turn, metadata_bytes
from matrix import EPOCH
from run import Run

_ABSENT = object()

CaseCheck = Callable[[Run, Log], None]


def check_form(run: Run, log: Log) -> None:
    """`package.schema` for a ledger: every line canonical, with the right keys and types."""
    log.count(len(run.entries))
    for problem in run.form:
        log.found(problem, run.name)


def check_run_identity(run: Run, log: Log) -> None:
    """`case.run_identity`, E6."""
    if run.claim is None:
        return
    log.count()
    wanted = run_identity(run)
    fault = difference("run_identity", run.claim.get("run_identity"), wanted)
    if fault is not None:
        log.found(fault, run.name)


def run_identity(run: Run) -> str:
    """E6: SHA-256 over the canonical JSON of what determines the run."""
    case = run.case
    determined = {
        "batch": case.batch,
        "case": case.name,
        "epoch": EPOCH,
        "fault": None if case.fault is None else case.fault.record(),
        "program_digest": block.digest(case.ranks),
        "ranks": case.ranks,
        "seed": case.seed,
        "sequence": case.sequence,
        "sum_order": case.sum_order,
    }
    return hashlib.sha256(canonical.encode(determined)).hexdigest()


def check_tape(run: Run, log: Log) -> None:
    """`case.tape`: whole frames and nothing more, one for each ledger entry, digest as claimed."""
    if run.tape_fault is not None:
        log.found(run.tape_fault, run.name)
        return
    log.count(len(run.turns))
    _check_digest(run, log, "tape")
    if run.ledger_fault is None and len(run.turns) != len(run.entries):
        log.found(f"{len(run.turns)} records, {len(run.entries)} ledger entries", run.name)
    for index, turn in enumerate(run.turns):
        left = len(turn.record.data) - turn.reading.consumed
        if left:
            log.found(f"record {index} has {left} bytes after its frame", run.name)
        undecodable = turn.reading.error is not None
        if undecodable and (run.case.fault is None or index != len(run.turns) - 1):
            log.found(f"record {index} does not decode: {turn.reading.error}", run.name)


def check_ledger(run: Run, log: Log) -> None:
    """`case.ledger`: every key of every entry recomputed from the tape."""
    if run.ledger_fault is not None:
        log.found(run.ledger_fault, run.name)
        return
    _check_digest(run, log, "ledger")
    wanted = [ledger.entry(index, turn) for index, turn in enumerate(run.turns)]
    log.count(len(wanted))
    for index, (got, want) in enumerate(zip_longest(run.entries, wanted)):
        if got is None or want is None:
            state = "not of the right form or missing" if got is None else "not in the tape"
            log.found(f"entry {index} is {state}", run.name)
            continue
        for key, value in want.items():
            fault = difference(f"entry {index}: {key}", got.get(key), value)
            if fault is not None:
                log.found(fault, run.name)


def _check_digest(run: Run, log: Log, what: str) -> None:
    if run.claim is not None:
        claimed = run.claim.get(f"{what}_sha256")
        fault = difference(f"{what}_sha256", claimed, run.digests.get(what))
        if fault is not None:
            log.found(fault, run.name)


def check_session(run: Run, log: Log) -> None:
    """`case.session`: S1, S3, S4 for each rank, and the exact order of S6 or its prefix."""
    if run.tape_fault is not None:
        return
    log.count(len(run.turns))
    last = len(run.steps) - 1
    for index, (turn, step) in enumerate(zip_longest(run.turns, run.steps)):
        fault = _misplaced(turn, step)
        if fault is not None:
            log.found(f"record {index}: {fault}", run.name)
        elif index != last or run.case.fault is None:
            if turn.refusal in ("contract.epoch", "contract.sequence"):
                log.found(f"record {index}: {_numbers(turn)}", run.name)
            elif turn.refusal in ("contract.kind", "contract.fence"):
                log.found(f"record {index}: no event of state {turn.state}", run.name)


def _misplaced(turn: Turn | None, step: Step | None) -> str | None:
    """Why a record does not stand where S6 has the frame `step`, by direction, rank and kind."""
    if turn is None:
        return f"missing; S6 has {_place(step)} here"
    if step is None:
        return f"one too many; the run ends before it, after {turn.state}"
    header = turn.reading.header
    kind = step.kind if header is None else header.kind
    got = (turn.record.direction, turn.record.rank, kind)
    if got != (step.direction, step.rank, step.kind):
        return f"{got[0]} {got[2]} of rank {got[1]}, S6 has {_place(step)} here"
    return None


def _place(step: Step | None) -> str:
    return "nothing" if step is None else f"{step.direction} {step.kind} of rank {step.rank}"


def _numbers(turn: Turn) -> str:
    header, step = turn.reading.header, turn.step
    if header is None or step is None:
        return f"refused with {turn.refusal}"
    return (
        f"epoch {header.epoch} and sequence {header.sequence}, "
        f"the session has {step.epoch} and {step.sequence}"
    )


def check_metadata(run: Run, log: Log) -> None:
    """`case.metadata`: the metadata of each whole frame is what is predicted at its place."""
    for index, (turn, step) in enumerate(zip(run.turns, run.steps, strict=False)):
        header = turn.reading.header
        if header is None or turn.reading.error == "protocol.truncated":
            continue
        log.count()
        got, wanted = metadata_bytes(turn.record.data, header), expected_metadata(run, step)
        if got != wanted:
            log.found(f"record {index}: {first_difference(got, wanted)}", run.name)


def expected_metadata(run: Run, step: Step) -> bytes:
    """The metadata at a place; where a `metadata_mismatch` ends, with another rank."""
    fault = run.case.fault
    if fault is None or fault.kind != "metadata_mismatch" or step is not run.steps[-1]:
        return step.metadata
    metadata = canonical.decode_object(step.metadata)
    return canonical.encode(metadata | {"rank": (step.rank + 1) % run.case.ranks})


def first_difference(got: bytes, wanted: bytes) -> str:
    """M5: the first differing key in sorted order, with both values."""
    predicted = canonical.decode_object(wanted)
    try:
        received = canonical.decode_object(got)
    except canonical.CanonicalError as error:
        return f"metadata: {error}"
    for key in sorted(received.keys() | predicted.keys()):
        have, agreed = received.get(key, _ABSENT), predicted.get(key, _ABSENT)
        if _ABSENT in (have, agreed) or canonical.encode(have) != canonical.encode(agreed):
            return f"{key} is {shown(have)}, agreed {shown(agreed)}"
    return "equal"


def check_accounting(run: Run, log: Log) -> None:
    """`case.accounting`: frames and bytes of the tape as claimed, clean ones by the formula."""
    if run.tape_fault is not None:
        return
    log.count()
    accounts = ledger.accounts(run.turns)
    for key, value in vars(accounts).items():
        claimed = None if run.claim is None else run.claim.get(key)
        fault = None if run.claim is None else difference(key, claimed, value)
        if fault is not None:
            log.found(fault, run.name)
    if run.case.fault is None:
        case = run.case
        formula = block.payload_bytes(case.ranks, case.batch, case.sequence)
        fault = difference("payload bytes of the tape", accounts.payload_bytes, formula)
        if fault is not None:
            log.found(f"{fault} by the formula", run.name)
