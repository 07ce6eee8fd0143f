"""A run's files give the run again."""

from __future__ import annotations

import pytest

from errors import EvidenceError
from evidence.matrix import all_cases
from evidence.stored_run import stored_run
from wire.ledger import Entry

CASE = all_cases()[0]
ENTRY = Entry(
    index=0,
    direction="receive",
    rank=3,
    kind=None,
    flags=None,
    epoch=None,
    sequence=None,
    state="OPEN",
    phase="mlp",
    tensor=None,
    shape=None,
    metadata_bytes=None,
    payload_bytes=None,
    checksum=None,
    payload_sha256=None,
    error="deadline.receive",
)


def test_the_failure_is_that_of_the_last_entry() -> None:
    failure = stored_run(CASE, ENTRY.to_line(), b"", None).failure
    assert failure is not None
    assert (failure.code, failure.rank, failure.phase) == ("deadline.receive", 3, "mlp")
    assert failure.family == "deadline"


def test_a_ledger_without_errors_is_of_a_clean_run() -> None:
    run = stored_run(CASE, b"", b"tape", b"output")
    assert (run.failure, run.tape, run.output, run.entries) == (None, b"tape", b"output", ())


def test_a_ledger_that_is_none_is_refused() -> None:
    with pytest.raises(EvidenceError):
        stored_run(CASE, b"{}\n", b"", None)
