"""One case with its files decoded: what the checks of a case are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from struct import Struct

from errors import EvidenceError
from evidence.matrix import FAULT_CODES, Case
from evidence.package import LEDGER, OUTPUT, TAPE
from program.block import block_spec
from verifier.package.documents import Documents, Record
from verifier.package.files import PackageFiles, UnreadableError
from verifier.package.replay import RawFrame, Replay, replay, take_apart
from verifier.package.script import Step, case_script
from wire.frame import Kind
from wire.tape import TAPE_MAGIC, TapeRecord, read_tape

# A run of the matrix has at most 76 frames; this bounds what a hostile tape of empty records costs.
RECORDS_MAX = 1_000
# S13: direction, rank, number of bytes.
RECORD_HEAD = Struct("!BHI")


def case_path(case_id: str, name: str) -> str:
    return f"cases/{case_id}/{name}"


@dataclass
class CaseFiles:
    """A case of the matrix and what the package has of it.

    claim: its record, None when there is none of the right form. ledger, tape, output: the files'
    bytes, None when unreadable. problems: why, by file name. records: the tape's; None when the
    tape breaks S13.
    """

    case: Case
    claim: Record | None
    ledger: bytes | None = None
    tape: bytes | None = None
    output: bytes | None = None
    digests: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    records: list[TapeRecord] | None = None

    @cached_property
    def script(self) -> tuple[Step, ...]:
        return case_script(self.case)

    @cached_property
    def frames(self) -> list[RawFrame]:
        """The tape's records, taken apart."""
        return [take_apart(record) for record in self.records or ()]

    @cached_property
    def replayed(self) -> Replay:
        fault = self.case.fault
        timed_out = fault is not None and FAULT_CODES[fault.kind].startswith("deadline")
        phases = block_spec(self.case.ranks).phases
        return replay(self.records or (), self.script, phases, timed_out)

    def payloads(self, kind: Kind) -> dict[int, list[bytes]]:
        """By rank, the payloads of the whole frames of a kind, in order; never a faulty frame's."""
        last = len(self.script) - 1
        found: dict[int, list[bytes]] = {}
        for index, frame in enumerate(self.frames):
            is_faulty = self.case.fault is not None and index == last
            if frame.kind is kind and frame.whole and not is_faulty:
                found.setdefault(frame.record.rank, []).append(frame.payload)
        return found


def read_case(case: Case, files: PackageFiles, documents: Documents) -> CaseFiles:
    """Read a case's files; what can't be read is noted, never raised."""
    run = CaseFiles(case, documents.by_case.get(case.case_id))
    run.ledger = _read(run, files, LEDGER)
    run.tape = _read(run, files, TAPE)
    if files.has(case_path(case.case_id, OUTPUT)):
        run.output = _read(run, files, OUTPUT)
    if run.tape is not None:
        try:
            _demand_few_records(run.tape)
            run.records = read_tape(run.tape)
        except EvidenceError as failure:
            run.problems[TAPE] = failure.message
    return run


def _demand_few_records(tape: bytes) -> None:
    """EvidenceError before a list of half a million empty records is made."""
    at = len(TAPE_MAGIC)
    for _ in range(RECORDS_MAX):
        if at + RECORD_HEAD.size > len(tape):
            return
        _, _, size = RECORD_HEAD.unpack_from(tape, at)
        at += RECORD_HEAD.size + size
    raise EvidenceError("tape", f"has more than {RECORDS_MAX} records")


def _read(run: CaseFiles, files: PackageFiles, name: str) -> bytes | None:
    path = case_path(run.case.case_id, name)
    try:
        data = files.read(path)
        run.digests[name] = files.digest(path)
        return data
    except UnreadableError as failure:
        run.problems[name] = str(failure)
        return None
