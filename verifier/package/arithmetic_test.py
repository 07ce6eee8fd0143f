"""What a run must compute is what a run computes; sums over ranks are the coordinator's."""

from __future__ import annotations

import struct

import pytest

from evidence.matrix import Case, all_cases
from evidence.runner import case_manifest
from simulation.block_simulation import BlockSimulation
from verifier.package.arithmetic import computed, reduce_partials
from verifier.package.replay import take_apart
from wire.frame import Kind
from wire.tape import read_tape

SAMPLE = [case for case in all_cases() if case.is_clean and case.seed == 3 and case.sequence == 4]


@pytest.mark.parametrize("case", SAMPLE, ids=lambda case: case.case_id)
def test_the_numbers_of_a_run(case: Case) -> None:
    simulation = BlockSimulation(case_manifest(case))
    output = simulation.run().output
    exact = computed(case)
    assert exact.result == output
    frames = [take_apart(record) for record in read_tape(simulation.recorder.tape())]
    partials = [frame.payload for frame in frames if frame.kind is Kind.PARTIAL]
    assert partials == [partial for of_ranks in exact.partials for partial in of_ranks]


def added(left: float, right: float) -> float:
    """One binary32 sum, spelled out."""
    rounded: float = struct.unpack("<f", struct.pack("<f", left + right))[0]
    return rounded


def test_sums_of_four_ranks() -> None:
    values = struct.unpack("<8f", struct.pack("<8f", 1e8, 1.0, -1e8, 3e-40, 0.1, -0.0, 1e-45, 7.25))
    turned = [(*values[rank:], *values[:rank]) for rank in range(4)]
    partials = [struct.pack("<8f", *floats) for floats in turned]
    by_rank = [added(added(added(a, b), c), d) for a, b, c, d in zip(*turned, strict=True)]
    in_pairs = [added(added(a, b), added(c, d)) for a, b, c, d in zip(*turned, strict=True)]
    assert reduce_partials(partials, "rank") == struct.pack("<8f", *by_rank)
    assert reduce_partials(partials, "pairwise") == struct.pack("<8f", *in_pairs)
    assert reduce_partials(partials[:1], "rank") == partials[0]


def test_the_two_orders_differ() -> None:
    partials = [struct.pack("<f", value) for value in (1e8, 1.0, -1e8, 1.0)]
    assert reduce_partials(partials, "rank") != reduce_partials(partials, "pairwise")
