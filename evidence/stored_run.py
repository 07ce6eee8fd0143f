"""A finished run as its files, and back: nothing of it is lost but the words of its failure."""

from __future__ import annotations

from typing import Final

from errors import PeerError
from errors.tree import ContractError, DeadlineError, ProtocolError
from evidence.matrix import Case
from evidence.record import CaseRun
from wire.ledger import Entry, read_ledger

_FAILURES: Final[dict[str, type[PeerError]]] = {
    kind.family: kind for kind in (ProtocolError, ContractError, DeadlineError)
}


def stored_run(case: Case, ledger: bytes, tape: bytes, output: bytes | None) -> CaseRun:
    """The run that left these files. Raises EvidenceError for a ledger that breaks S12."""
    entries = tuple(read_ledger(ledger))
    failure = _failure(entries[-1]) if entries else None
    return CaseRun(case, entries, ledger, tape, output, failure)


def _failure(last: Entry) -> PeerError | None:
    """The failing entry is the last one of a ledger (docs/spec/session.md S12)."""
    if last.error is None:
        return None
    family, _, reason = last.error.partition(".")
    return _FAILURES[family](reason, "as the ledger says", rank=last.rank, phase=last.phase)
