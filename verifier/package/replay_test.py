"""A tape read again gives the ledger that was written with it; a broken one ends there."""

from __future__ import annotations

import pytest

from evidence.matrix import Case, all_cases
from evidence.runner import case_manifest
from program.block import block_spec
from simulation.block_simulation import BlockSimulation
from simulation.faults import Fault, FaultKind
from verifier.package.replay import Replay, replay, take_apart
from verifier.package.script import case_script
from wire.frame import Kind, Side
from wire.tape import TapeRecord, read_tape

CASES = {case.case_id: case for case in all_cases()}
CLEAN = CASES["clean-r2-b1-t1-s1-rank"]
PHASES = block_spec(2).phases


def recorded(case: Case) -> tuple[list[TapeRecord], bytes]:
    faults = {}
    if case.fault is not None:
        kind = FaultKind(case.fault.kind)
        faults = {case.fault.rank: Fault(kind, case.fault.phase, case.ranks)}
    simulation = BlockSimulation(case_manifest(case), faults)
    simulation.run()
    return read_tape(simulation.recorder.tape()), simulation.recorder.ledger()


def again(records: list[TapeRecord], case: Case = CLEAN) -> Replay:
    timed_out = case.fault is not None and case.fault.kind in ("delay", "cancellation_race")
    return replay(records, case_script(case), PHASES, timed_out)


@pytest.mark.parametrize(
    "case",
    [CLEAN, *(case for case in CASES.values() if case.fault and case.seed == 2)],
    ids=lambda case: case.case_id,
)
def test_the_ledger_of_a_run(case: Case) -> None:
    records, ledger = recorded(case)
    replayed = again(records, case)
    assert replayed.ledger == ledger
    assert len(replayed.entries) == len(records)
    assert not any(replayed.left)


def test_a_broken_record_is_the_last_entry() -> None:
    records, _ = recorded(CLEAN)
    at = 20
    records[at] = records[at]._replace(raw=records[at].raw[:-1] + b"?")
    replayed = again(records)
    assert len(replayed.entries) == at + 1
    assert replayed.entries[-1].error == "protocol.checksum"


def test_bytes_after_a_frame_are_left() -> None:
    records, _ = recorded(CLEAN)
    records[5] = records[5]._replace(raw=records[5].raw + b"more")
    assert again(records).left[-1] == 4


def test_an_empty_record_is_a_closed_stream() -> None:
    records, _ = recorded(CLEAN)
    records[3] = records[3]._replace(raw=b"")
    assert again(records).entries[-1].error == "protocol.closed"


def test_a_frame_of_a_rank_that_has_no_part() -> None:
    records, _ = recorded(CLEAN)
    records.append(records[0]._replace(rank=60_000))
    assert again(records).entries[-1].error is None


@pytest.mark.parametrize(
    "raw", [b"", b"RKPF", b"HTTP" + b"\0" * 40, b"RKPF\x01\x63" + b"\0" * 40, b"RKPF\x02" * 9]
)
def test_what_has_no_header(raw: bytes) -> None:
    assert take_apart(TapeRecord(Side.WORKER, 0, raw)).kind is None


def test_a_frame_taken_apart() -> None:
    records, _ = recorded(CLEAN)
    frame = take_apart(records[-1])
    assert (frame.kind, frame.epoch, frame.sequence, frame.whole) == (Kind.RESULT, 1, 5, True)
    assert len(frame.payload) == 64
