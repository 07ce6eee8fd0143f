"""A run's line of cases.jsonl: identity, accounting, errors, and what is refused as evidence."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from errors import EvidenceError
from evidence.matrix import Case, all_cases
from evidence.record import CaseRun, case_record, run_identity, scientific, sha256_hex
from evidence.runner import case_manifest
from evidence.stored_run import stored_run
from program.block import block_spec
from program.digest import program_digest
from simulation.block_simulation import BlockSimulation
from simulation.faults import Fault, FaultKind

CASES = {case.case_id: case for case in all_cases()}


def run_of(case: Case) -> CaseRun:
    """The run of a case, in memory."""
    faults = {}
    if case.fault is not None:
        fault = Fault(FaultKind(case.fault.kind), case.fault.phase, case.ranks)
        faults = {case.fault.rank: fault}
    simulation = BlockSimulation(case_manifest(case), faults)
    output = simulation.run().output
    recorder = simulation.recorder
    return stored_run(case, recorder.ledger(), recorder.tape(), output)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.000e+00"), (2.384e-07, "2.384e-07"), (1.23456e-7, "1.235e-07"), (1.0, "1.000e+00")],
)
def test_numbers_have_one_form(value: float, text: str) -> None:
    assert scientific(value) == text


def test_the_identity_is_over_these_bytes() -> None:
    """E6, spelled out."""
    digest = program_digest(block_spec(4))
    spelled = (
        '{"batch":2,"case":"fault-delay-mlp-s3","epoch":1,'
        '"fault":{"kind":"delay","phase":"mlp","rank":2},'
        f'"program_digest":"{digest}","ranks":4,"seed":3,"sequence":4,"sum_order":"rank"}}'
    )
    assert run_identity(CASES["fault-delay-mlp-s3"]) == sha256_hex(spelled.encode("ascii"))


def test_every_case_has_its_own_identity() -> None:
    assert len({run_identity(case) for case in CASES.values()}) == len(CASES)


def test_a_clean_run() -> None:
    record = case_record(run_of(CASES["clean-r2-b2-t7-s1-rank"]))
    assert (record["frames_sent"], record["frames_received"]) == (26, 12)
    assert (record["payload_bytes"], record["header_bytes"]) == (18_432, 36 * 38)
    assert (record["outcome"], record["error"], record["output_bytes"]) == ("ok", None, 896)
    assert float(str(record["max_abs_error"])) < 1e-6


def test_a_faulty_run() -> None:
    record = case_record(run_of(CASES["fault-rank_exit-mlp-s3"]))
    assert record["error"] == {"code": "protocol.closed", "phase": "mlp", "rank": 2}
    assert record["outcome"] == "protocol"
    assert {record[key] for key in ("output_bytes", "output_sha256", "max_abs_error")} == {None}


def test_a_wrong_output_is_no_evidence() -> None:
    run = run_of(CASES["clean-r1-b1-t1-s1-rank"])
    values = list(struct.unpack("<16f", run.output or b""))
    values[3] += 1e-3
    with pytest.raises(EvidenceError) as refusal:
        case_record(replace(run, output=struct.pack("<16f", *values)))
    assert (refusal.value.check, refusal.value.case_id) == ("case.error", run.case.case_id)
