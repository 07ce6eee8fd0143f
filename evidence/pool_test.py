"""Jobs side by side: results in order, failures by case, crashes noticed, nothing left."""

from __future__ import annotations

import os
from itertools import pairwise

import pytest

from errors import EvidenceError, TPError
from evidence import pool
from evidence.matrix import FAULT_CODES, Case, all_cases, select
from evidence.pool import Finished, run_cases, try_cases
from evidence.record import CaseRun

CASES = select(
    [
        "clean-r1-b1-t1-s1-rank",
        "clean-r2-b1-t1-s1-rank",
        "fault-rank_exit-mlp-s1",
        "fault-stale_epoch-result-s2",
    ]
)


def silent(done: int, total: int, case_id: str) -> None:
    """No progress is shown."""


def test_results_are_in_the_order_of_the_cases() -> None:
    told: list[tuple[int, int]] = []
    finished = run_cases(CASES, 3, lambda done, total, case_id: told.append((done, total)))
    assert [each.run.case for each in finished] == list(CASES)
    assert told == [(number, 4) for number in (1, 2, 3, 4)]
    failures = [each.run.failure for each in finished]
    assert [failure.code if failure else None for failure in failures] == [
        None,
        None,
        "protocol.closed",
        "contract.epoch",
    ]
    assert [each.run.output is None for each in finished] == [False, False, True, True]
    assert all(each.seconds > 0 for each in finished)


def _one_case_fails(case: Case) -> CaseRun:
    if case.fault is not None:
        raise EvidenceError("case.outcome", "it ended otherwise", case_id=case.case_id)
    return CaseRun(case, (), b"", b"", b"", None)


def test_a_case_that_ends_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "run_case", _one_case_fails)
    results = try_cases(CASES, 2, silent)
    assert [isinstance(result, Finished) for result in results.values()] == [
        True,
        True,
        False,
        False,
    ]
    with pytest.raises(EvidenceError) as failure:
        run_cases(CASES, 2, silent)
    assert failure.value.case_id == "fault-rank_exit-mlp-s1"


def test_a_job_that_crashes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def crash(case: Case) -> CaseRun:
        raise ZeroDivisionError(case.case_id)

    monkeypatch.setattr(pool, "run_case", crash)
    with pytest.raises(TPError) as failure:
        run_cases(CASES[:1], 1, silent)
    assert failure.value.code == "evidence.job"
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_no_process_is_left() -> None:
    run_cases(CASES[:2], 2, silent)
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


def test_sleeping_cases_are_spread_and_not_the_last() -> None:
    cases = all_cases()
    order = pool._order(cases)
    assert sorted(order) == list(range(len(cases)))
    waiting = [at for at, index in enumerate(order) if "deadline" in _outcome(cases[index])]
    assert len(waiting) == 24
    assert min(b - a for a, b in pairwise(waiting)) >= 8
    assert waiting[-1] < 0.85 * len(order)


def _outcome(case: Case) -> str:
    return FAULT_CODES[case.fault.kind] if case.fault else ""
