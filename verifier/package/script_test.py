"""The script is what the coordinator really does: the same frames, byte for byte of metadata."""

from __future__ import annotations

import pytest

from evidence.matrix import Case, all_cases
from evidence.runner import case_manifest
from simulation.block_simulation import BlockSimulation
from verifier.package.replay import take_apart
from verifier.package.script import Step, case_script, clean_script, other_rank
from wire.frame import Kind, Side
from wire.tape import read_tape

CASES = {case.case_id: case for case in all_cases()}


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_a_clean_run_follows_it(ranks: int) -> None:
    case = CASES[f"clean-r{ranks}-b2-t4-s1-rank"]
    simulation = BlockSimulation(case_manifest(case))
    simulation.run()
    frames = [take_apart(record) for record in read_tape(simulation.recorder.tape())]
    said = [
        (frame.record.sender, frame.record.rank, frame.kind, frame.metadata) for frame in frames
    ]
    script = case_script(case)
    assert said == [(s.sender, s.rank, s.kind, s.agreed.metadata) for s in script]
    assert [frame.sequence for frame in frames] == [step.sequence for step in script]
    assert [len(frame.payload) for frame in frames] == [s.agreed.payload_bytes for s in script]
    entries = simulation.recorder.entries()
    assert [entry.phase for entry in entries] == [step.phase for step in script]


def test_six_frames_out_and_thirteen_in() -> None:
    for ranks in (1, 2, 4):
        script = clean_script(ranks, 1, 1)
        for rank in range(ranks):
            senders = [step.sender for step in script if step.rank == rank]
            assert (senders.count(Side.WORKER), senders.count(Side.COORDINATOR)) == (6, 13)


@pytest.mark.parametrize(
    ("case_id", "kind", "rank"),
    [
        ("fault-rank_exit-attention-s1", Kind.PARTIAL, 0),
        ("fault-cancellation_race-mlp-s3", Kind.FENCE, 2),
        ("fault-cancellation_race-result-s2", Kind.RESULT, 1),
        ("fault-delay-result-s4", Kind.RESULT, 3),
    ],
)
def test_a_fault_case_ends_where_its_fault_is_found(case_id: str, kind: Kind, rank: int) -> None:
    case: Case = CASES[case_id]
    last: Step = case_script(case)[-1]
    assert (last.kind, last.rank, last.phase) == (kind, rank, case.fault and case.fault.phase)


def test_the_next_rank_after_the_last_is_the_first() -> None:
    step = [step for step in clean_script(4, 1, 1) if step.kind is Kind.RESULT][3]
    assert b'"rank":0,' in other_rank(step, 4).agreed.metadata
