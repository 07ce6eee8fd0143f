"""The checks of a case on its identity, tape, ledger, session, metadata and accounting.

Each is a function of the case's files and record alone, and reports one code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from itertools import zip_longest
from typing import Final

from errors import EvidenceError, PeerError
from evidence.package import LEDGER, TAPE
from evidence.record import run_identity
from program.block import block_payload_bytes
from verifier.package.case_run import CaseFiles
from verifier.package.documents import split_lines
from verifier.package.findings import Log, shown
from verifier.package.replay import RawFrame
from verifier.package.script import Step, other_rank
from wire.canonical import decode_canonical
from wire.frame import Side
from wire.ledger import Entry, parse_line, totals
from wire.metadata import demand

CaseCheck = Callable[[CaseFiles, Log], None]
# Above any ledger of the matrix; bounds what a hostile one costs.
LEDGER_LINES_MAX: Final = 1_000


def check_ledger_form(run: CaseFiles, log: Log) -> None:
    """`package.schema`: every ledger line canonical, with the keys and types of S12."""
    if run.ledger is None or run.ledger == run.replayed.ledger:
        return
    try:
        lines = split_lines(run.ledger, LEDGER_LINES_MAX)
    except ValueError as failure:
        log.found(f"{LEDGER}: {failure}")
        return
    for index, line in enumerate(lines):
        try:
            parse_line(line + b"\n", index)
        except EvidenceError as failure:
            log.found(f"{LEDGER}: {failure.message}")


def check_run_identity(run: CaseFiles, log: Log) -> None:
    """`case.run_identity`: E6."""
    if run.claim is not None:
        log.compare("run_identity", run.claim["run_identity"], run_identity(run.case))


def check_tape(run: CaseFiles, log: Log) -> None:
    """`case.tape`: records that hold whole frames and nothing else, one per ledger line."""
    if TAPE in run.problems:
        log.found(run.problems[TAPE])
        return
    if run.claim is not None:
        log.compare("tape_sha256", run.claim["tape_sha256"], run.digests[TAPE])
    if run.ledger is not None:
        log.compare("number of records", len(run.frames), run.ledger.count(b"\n"))
    last = len(run.script) - 1
    for index, frame in enumerate(run.frames):
        # The record of the fault is judged by `case.outcome`.
        if not frame.whole and (run.case.fault is None or index != last):
            log.found(f"record {index} of {len(frame.record.raw)} bytes is not one whole frame")
    for index, entry in enumerate(run.replayed.entries):
        refused = entry.error is not None and entry.error.startswith("protocol.")
        if refused and (run.case.fault is None or index != last):
            log.found(f"record {index} does not decode: {entry.error}")


def check_ledger(run: CaseFiles, log: Log) -> None:
    """`case.ledger`: every key of every entry is what the tape gives."""
    if run.ledger is None:
        log.found(run.problems[LEDGER])
        return
    if run.claim is not None:
        log.compare("ledger_sha256", run.claim["ledger_sha256"], run.digests[LEDGER])
    if run.records is None or run.ledger == run.replayed.ledger:
        return
    lines = run.ledger.split(b"\n")[:LEDGER_LINES_MAX]
    wanted = run.replayed.ledger.split(b"\n")
    for index, (got, want) in enumerate(zip_longest(lines, wanted, fillvalue=b"")):
        if got != want:
            _explain(index, got, want, log)


def _explain(index: int, got: bytes, want: bytes, log: Log) -> None:
    """Report each key in which two ledger lines differ."""
    if not got or not want:
        log.found(f"entry {index} is {'missing' if want else 'not in the tape'}")
        return
    try:
        theirs = parse_line(got + b"\n", index)
    except EvidenceError:
        log.found(f"entry {index} is no entry; the tape gives {want[:80]!r}")
        return
    ours = parse_line(want + b"\n", index)
    for field in fields(Entry):
        log.compare(
            f"entry {index}: {field.name}", getattr(theirs, field.name), getattr(ours, field.name)
        )


def check_session(run: CaseFiles, log: Log) -> None:
    """`case.session`: S1, S3, S4, S6: the exact frames in the exact order, up to the fault."""
    if run.records is None:
        return
    last = len(run.script) - 1
    for index, (frame, step) in enumerate(zip_longest(run.frames, run.script)):
        if frame is None or step is None:
            what = f"missing; S6 has {step.describe()}" if step else "one too many"
            log.found(f"record {index} is {what}")
            continue
        problem = _misplaced(frame, step)
        if problem is None and (run.case.fault is None or index != last):
            problem = _misnumbered(frame, step)
        if problem is not None:
            log.found(f"record {index}: {problem}")


def _misplaced(frame: RawFrame, step: Step) -> str | None:
    record = frame.record
    kind = step.kind if frame.kind is None else frame.kind
    if (record.sender, record.rank, kind) == (step.sender, step.rank, step.kind):
        return None
    verb = "sent to" if record.sender is Side.COORDINATOR else "received from"
    return f"{kind.name} {verb} rank {record.rank}; S6 has {step.describe()}"


def _misnumbered(frame: RawFrame, step: Step) -> str | None:
    if frame.kind is None or (frame.epoch, frame.sequence) == (step.epoch, step.sequence):
        return None
    got = f"epoch {frame.epoch}, sequence {frame.sequence}"
    return f"{got}; S3 and S4 give {step.epoch}, {step.sequence}"


def check_metadata(run: CaseFiles, log: Log) -> None:
    """`case.metadata`: what every frame says is what the program predicts at its place.

    A place is a position in the frames of one rank in one direction, so that frames in another
    order are `case.session` findings alone.
    """
    agreed: dict[tuple[int, Side], list[Step]] = {}
    for planned in run.script:
        agreed.setdefault((planned.rank, planned.sender), []).append(planned)
    for index, frame in enumerate(run.frames):
        steps = agreed.get((frame.record.rank, frame.record.sender))
        step = steps.pop(0) if steps else None
        if step is None or frame.kind is None:
            continue
        at_fault = index == len(run.script) - 1 and run.case.fault is not None
        wanted = predicted_metadata(run, step) if at_fault else step.agreed.metadata
        # Of a truncated frame the beginning is all there is.
        if frame.metadata != (wanted[: len(frame.metadata)] if at_fault else wanted):
            log.found(f"record {index}: {_difference(frame.metadata, wanted)}")


def predicted_metadata(run: CaseFiles, step: Step) -> bytes:
    """The metadata of the frame that the case's fault strikes."""
    fault = run.case.fault
    if fault is not None and fault.kind == "metadata_mismatch":
        step = other_rank(step, run.case.ranks)
    return step.agreed.metadata


def _difference(got: bytes, wanted: bytes) -> str:
    try:
        decode_canonical(got)
        demand(got, wanted)
    except PeerError as failure:
        return failure.message
    return f"metadata is {shown(got)}"


def check_accounting(run: CaseFiles, log: Log) -> None:
    """`case.accounting`: E5's counts are the tape's; clean payload bytes follow the formula."""
    if run.records is None:
        return
    entries = run.replayed.entries
    sums = totals(entries)
    with_header = [entry for entry in entries if entry.flags is not None]
    counted = {
        "frames_sent": sum(entry.direction == "send" for entry in with_header),
        "frames_received": sum(entry.direction == "receive" for entry in with_header),
        **sums._asdict(),
    }
    if run.claim is not None:
        for key, value in counted.items():
            log.compare(key, run.claim[key], value)
    case = run.case
    if case.fault is None:
        formula = block_payload_bytes(case.ranks, case.batch, case.sequence)
        log.compare("payload bytes of the tape", sums.payload_bytes, formula)
