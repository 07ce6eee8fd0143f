"""The whole matrix in memory: the same ledgers, tapes, outputs and codes as of real processes.

Every case with whole deliveries; a sample of each kind also byte by byte and at seeded cuts.
"""

from __future__ import annotations

import pytest

from evidence.compare import explain
from evidence.matrix import FAULT_CODES, Case, all_cases
from evidence.package import LEDGER, OUTPUT, TAPE
from evidence.runner import case_manifest
from evidence.tampering.committed import PACKAGE
from simulation.block_simulation import BlockSimulation, Cuts, whole_cuts
from simulation.delivery import Delivery, byte_by_byte, seeded_cuts
from simulation.faults import Fault, FaultKind
from tools.python.tiers import mostly_exhaustive


def bytes_cuts() -> Delivery:
    return byte_by_byte


def seeded(seed: int) -> Cuts:
    return lambda: seeded_cuts(seed)


def simulate(case: Case, cuts: Cuts) -> dict[str, bytes]:
    """The files that a case leaves in memory; its failure must be the one of the table."""
    faults = {}
    if case.fault is not None:
        fault = Fault(FaultKind(case.fault.kind), case.fault.phase, case.ranks)
        faults = {case.fault.rank: fault}
    simulation = BlockSimulation(case_manifest(case), faults, cuts)
    outcome = simulation.run()
    failure = outcome.failure
    found = (failure.code, failure.rank, failure.phase) if failure else None
    if case.fault is None:
        assert found is None
    else:
        assert found == (FAULT_CODES[case.fault.kind], case.fault.rank, case.fault.phase)
        assert outcome.output is None
    files = {LEDGER: simulation.recorder.ledger(), TAPE: simulation.recorder.tape()}
    return files if outcome.output is None else files | {OUTPUT: outcome.output}


def committed(case: Case) -> dict[str, bytes]:
    folder = PACKAGE / "cases" / case.case_id
    return {path.name: path.read_bytes() for path in folder.iterdir()}


# Pytest's own parameters would cost more than the cases do.
@pytest.mark.parametrize("part", mostly_exhaustive(range(8), lambda part: part < 2))
def test_every_case(part: int) -> None:
    for case in all_cases()[part::8]:
        explained = explain(committed(case), simulate(case, whole_cuts))
        assert explained == "", f"{case.case_id}\n{explained}"


SAMPLE = [*(case for case in all_cases() if case.is_clean and case.seed == 2 and case.batch == 1)][
    ::4
] + [case for case in all_cases() if case.fault is not None and case.seed == 3]


@pytest.mark.parametrize(
    "case",
    mostly_exhaustive(SAMPLE, lambda case: case in SAMPLE[::5]),
    ids=lambda case: case.case_id,
)
def test_the_cuts_of_the_stream_change_nothing(case: Case) -> None:
    for cuts in (bytes_cuts, seeded(case.seed), seeded(len(case.case_id))):
        assert explain(committed(case), simulate(case, cuts)) == ""
