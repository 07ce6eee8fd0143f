"""One case with its files decoded: what the checks of a case are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import block
import bundle
import ledger
import script
from bundle import Bundle, Measured
from frames import Record, TapeError, announced_payload_bytes, read_tape
from ledger import Step, Turn
from matrix import EPOCH, FAULT_KINDS, Case
from package import Unreadable, case_path


@dataclass
class Run:
    """A case of the matrix, what the package claims of it, and its files.

    `claim` is the record of `cases.jsonl`, of whatever form, or None. `steps` are the frames
    predicted, `records` those in the tape. `output` is None where there is no such file. `unread`
    holds why files could not be read, `tape_fault` why there is no tape to look at. What only some
    checks look at is decoded when the first of them does.
    """

    case: Case
    claim: dict[str, Any] | None
    steps: tuple[Step, ...]
    records: list[Record] = field(default_factory=list)
    ledger_data: bytes = b""
    output: bytes | None = None
    digests: dict[str, str] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    tape_fault: str | None = None
    ledger_unread: str | None = None

    @property
    def name(self) -> str:
        return self.case.name

    @cached_property
    def turns(self) -> list[Turn]:
        """The records, each read and judged."""
        case, fault = self.case, self.case.fault
        deadline = fault is not None and FAULT_KINDS[fault.kind].outcome == "deadline"
        steps = script.clean_steps(case.ranks, case.batch, case.sequence, EPOCH)
        connections = script.connections(steps)
        return ledger.replay(self.records, connections, block.PHASES, EPOCH, deadline)

    @cached_property
    def _lines(self) -> tuple[list[dict[str, Any] | None], list[str], str | None]:
        try:
            return (*bundle.ledger_lines(self.ledger_data), None)
        except ValueError as error:
            return [], [], str(error)

    @property
    def entries(self) -> list[dict[str, Any] | None]:
        """The lines of the ledger, None for a line of the wrong form."""
        return self._lines[0]

    @property
    def form(self) -> list[str]:
        """The faults of form of the case's files."""
        return [*self.unread, *self._lines[1]]

    @property
    def ledger_fault(self) -> str | None:
        """Why there is no ledger to look at, or None."""
        return self.ledger_unread or self._lines[2]

    def payloads(self, kind: str) -> dict[int, list[bytes]]:
        """By rank, the payloads of the accepted frames of a kind, in order."""
        found: dict[int, list[bytes]] = {}
        for turn in self.turns:
            header = turn.reading.header
            if turn.refusal is None and header is not None and header.kind == kind:
                found.setdefault(turn.record.rank, []).append(turn.reading.payload)
        return found


def load(package: Bundle, case: Case, claim: dict[str, Any] | None) -> Run:
    """Reads and decodes the files of a case; what can't be is noted, never raised."""
    run = Run(case, claim, script.expected_steps(case, EPOCH))
    tape_bytes = _load_tape(package, run)
    _load_ledger(package, run)
    path = case_path(case.name, "output.f32")
    if path in package.package.sizes:
        try:
            run.output = package.package.read(path)
            run.digests["output"] = package.package.digest(path).sha256
        except Unreadable as error:
            run.unread.append(str(error))
    right_size = run.output is not None and len(run.output) == 4 * block.HIDDEN * case.tokens
    package.measured[case.name] = Measured(
        run.ledger_data.count(b"\n"),
        tape_bytes,
        announced_payload_bytes(run.records),
        run.output if right_size else None,
    )
    return run


def _load_tape(package: Bundle, run: Run) -> int:
    path = case_path(run.name, "tape.bin")
    try:
        data = package.package.read(path)
        run.digests["tape"] = package.package.digest(path).sha256
        run.records = read_tape(data)
    except (Unreadable, TapeError) as error:
        run.tape_fault = str(error)
        return package.package.sizes.get(path, 0)
    return len(data)


def _load_ledger(package: Bundle, run: Run) -> None:
    path = case_path(run.name, "ledger.jsonl")
    try:
        run.ledger_data = package.package.read(path)
        run.digests["ledger"] = package.package.digest(path).sha256
    except Unreadable as error:
        run.ledger_unread = str(error)
