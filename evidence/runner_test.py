"""One case: its manifest, its workers, and what is accepted as its end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from errors import EvidenceError
from errors.tree import ContractError, DeadlineError
from evidence.matrix import Case, all_cases
from evidence.record import CaseRun
from evidence.runner import (
    PHASE_MS,
    TIMEOUT_CASE_PHASE_MS,
    case_launcher,
    case_manifest,
    check_outcome,
    run_case,
)
from worker.main import main as worker

CASES = {case.case_id: case for case in all_cases()}
CLEAN = CASES["clean-r2-b1-t2-s1-pairwise"]
FAULT = CASES["fault-stale_epoch-mlp-s3"]
AGREED = ContractError("epoch", "as agreed", rank=2, phase="mlp")


def ended(
    case: Case, failure: ContractError | DeadlineError | None, output: bytes | None
) -> CaseRun:
    return CaseRun(case, (), b"", b"", output, failure)


def test_only_a_case_that_times_out_waits_briefly() -> None:
    waits = {case.case_id: case_manifest(case).deadlines.phase_ms for case in CASES.values()}
    brief = {name for name, wait in waits.items() if wait == TIMEOUT_CASE_PHASE_MS}
    assert brief == {
        name for name in CASES if name.startswith(("fault-delay", "fault-cancellation_race"))
    }
    assert set(waits.values()) == {TIMEOUT_CASE_PHASE_MS, PHASE_MS}


def test_only_the_faulty_rank_is_told_of_its_fault() -> None:
    assert case_launcher(CLEAN).extra == ()
    assert "--fault-rank 2 --fault-phase mlp" in " ".join(case_launcher(FAULT).extra)


@pytest.mark.parametrize("case", [CLEAN, FAULT], ids=lambda case: case.case_id)
def test_a_case_over_real_processes(case: Case) -> None:
    run = run_case(case)
    assert run.ledger.count(b"\n") == len(run.entries)
    assert (run.output is None) is (case is FAULT)


def test_what_ends_as_agreed_is_accepted() -> None:
    check_outcome(ended(CLEAN, None, b"output"))
    check_outcome(ended(FAULT, AGREED, None))


@pytest.mark.parametrize(
    "run",
    [
        ended(CLEAN, AGREED, None),
        ended(FAULT, None, b"output"),
        ended(FAULT, AGREED, b"output"),
        ended(FAULT, ContractError("sequence", "another code", rank=2, phase="mlp"), None),
        ended(FAULT, ContractError("epoch", "another rank", rank=1, phase="mlp"), None),
        ended(FAULT, ContractError("epoch", "another phase", rank=2, phase="result"), None),
        ended(FAULT, DeadlineError("receive", "another class", rank=2, phase="mlp"), None),
    ],
    ids=lambda run: repr(run.failure)[:50],
)
def test_any_other_end_is_refused(run: CaseRun) -> None:
    with pytest.raises(EvidenceError) as refusal:
        check_outcome(run)
    assert refusal.value.case_id == run.case.case_id


def test_a_worker_that_ends_badly_after_a_clean_run(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(case_launcher(CLEAN), entry=_serves_then_fails)
    monkeypatch.setattr("evidence.runner.case_launcher", lambda case: wrong)
    with pytest.raises(EvidenceError) as refusal:
        run_case(CLEAN)
    assert refusal.value.check == "case.outcome"


def _serves_then_fails(argv: list[str]) -> int:
    return worker(argv) or 5
