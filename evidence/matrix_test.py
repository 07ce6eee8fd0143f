"""The matrix is the one that docs/spec/evidence.md E5 fixes."""

from __future__ import annotations

from collections import Counter

import pytest

from errors import ConfigError
from evidence.matrix import FAULT_CODES, all_cases, select
from simulation.faults import FaultKind


def test_counts_and_uniqueness() -> None:
    cases = all_cases()
    assert len(cases) == len({case.case_id for case in cases}) == 288
    assert sum(case.is_clean for case in cases) == 192
    assert [case.case_id for case in cases] == sorted(case.case_id for case in cases)


def test_outcome_classes_are_36_36_24() -> None:
    classes = Counter(
        FAULT_CODES[case.fault.kind].split(".")[0] for case in all_cases() if case.fault
    )
    assert classes == {"protocol": 36, "contract": 36, "deadline": 24}


def test_every_fault_kind_can_be_applied() -> None:
    assert set(FAULT_CODES) == {kind.value for kind in FaultKind}


def test_each_rank_is_faulty_equally_often() -> None:
    ranks = Counter(case.fault.rank for case in all_cases() if case.fault)
    assert ranks == {0: 24, 1: 24, 2: 24, 3: 24}


def test_select_refuses_an_unknown_case() -> None:
    with pytest.raises(ConfigError) as refusal:
        select(["clean-r3-b1-t1-s1-rank"])
    assert refusal.value.problems[0].field == "--only"


def test_select_sorts_and_drops_repetitions() -> None:
    names = ["fault-delay-mlp-s2", "clean-r1-b1-t1-s1-rank", "fault-delay-mlp-s2"]
    assert [case.case_id for case in select(names)] == sorted(set(names))
