"""One case with its files decoded: what the checks of a case are given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import block
import bundle
import ledger
import script
from bundle import Bundle, Measured
from frames import TapeError, read_tape
from ledger import Step, Turn
from matrix import EPOCH, FAULT_KINDS, Case
from package import Unreadable, case_path


@dataclass
class Run:
    """A case of the matrix, what the package claims of it, and its files.

    `claim` is the record of `cases.jsonl`, of whatever form, or None. `steps` are the frames
    predicted, `turns` those in the tape; `entries` are the lines of the ledger, None for a line of
    the wrong form. `output` is None where there is no such file. `form` holds the faults of form,
    `tape_fault` and `ledger_fault` why there is no tape or ledger to look at.
    """

    case: Case
    claim: dict[str, Any] | None
    steps: tuple[Step, ...]
    turns: list[Turn] = field(default_factory=list)
    entries: list[dict[str, Any] | None] = field(default_factory=list)
    output: bytes | None = None
    digests: dict[str, str] = field(default_factory=dict)
    form: list[str] = field(default_factory=list)
    tape_fault: str | None = None
    ledger_fault: str | None = None

    @property
    def name(self) -> str:
        return self.case.name

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
            run.form.append(str(error))
    right_size = run.output is not None and len(run.output) == 4 * block.HIDDEN * case.tokens
    package.measured[case.name] = Measured(
        len(run.entries),
        tape_bytes,
        ledger.accounts(run.turns).payload_bytes,
        run.output if right_size else None,
    )
    return run


def _load_tape(package: Bundle, run: Run) -> int:
    path = case_path(run.name, "tape.bin")
    fault = run.case.fault
    deadline = fault is not None and FAULT_KINDS[fault.kind].outcome == "deadline"
    connections = script.connections(
        script.clean_steps(run.case.ranks, run.case.batch, run.case.sequence, EPOCH)
    )
    try:
        data = package.package.read(path)
        run.digests["tape"] = package.package.digest(path).sha256
        run.turns = ledger.replay(read_tape(data), connections, block.PHASES, EPOCH, deadline)
    except (Unreadable, TapeError) as error:
        run.tape_fault = str(error)
        return package.package.sizes.get(path, 0)
    return len(data)


def _load_ledger(package: Bundle, run: Run) -> None:
    path = case_path(run.name, "ledger.jsonl")
    try:
        data = package.package.read(path)
        run.digests["ledger"] = package.package.digest(path).sha256
        run.entries, problems = bundle.ledger_lines(data)
        run.form.extend(problems)
    except (Unreadable, ValueError) as error:
        run.ledger_fault = str(error)
