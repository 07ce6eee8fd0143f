"""The rules accept what our own package has, and name what is wrong with anything else."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from evidence.made_up import made_up_records
from evidence.summary import summarize
from verifier.package.schema import (
    CLEAN_RULES,
    FAULT_RULES,
    SUMMARY_RULES,
    broken_rules,
    case_rules,
    is_scientific,
    one_of,
)

RECORDS = {record["case"]: record for record in made_up_records()}
CLEAN, FAULT = RECORDS["clean-r1-b1-t1-s1-rank"], RECORDS["fault-delay-mlp-s2"]
WRONG: list[Any] = [[], {}, True, 1.5, -1, 1 << 60, "x" * 300, None, "nan", 7]


def test_records_of_every_case_are_accepted() -> None:
    for record in RECORDS.values():
        assert list(broken_rules(record, case_rules(record))) == []


@pytest.mark.parametrize("record", [CLEAN, FAULT], ids=["clean", "fault"])
def test_every_key_refuses_other_types(record: dict[str, Any]) -> None:
    rules = CLEAN_RULES if record["fault"] is None else FAULT_RULES
    for key in record:
        refused = [value for value in WRONG if list(broken_rules(record | {key: value}, rules))]
        assert len(refused) >= len(WRONG) - 2, key


@pytest.mark.parametrize("record", [CLEAN, FAULT], ids=["clean", "fault"])
def test_keys_are_exact(record: dict[str, Any]) -> None:
    rules = case_rules(record)
    for key in record:
        assert list(broken_rules({k: v for k, v in record.items() if k != key}, rules))
    assert list(broken_rules(record | {"note": 1}, rules))


def test_the_two_columns_do_not_mix() -> None:
    assert list(broken_rules(CLEAN, FAULT_RULES))
    assert list(broken_rules(FAULT, CLEAN_RULES))


def test_the_summary() -> None:
    summary: Any = copy.deepcopy(summarize(made_up_records(), 1, 2))
    assert list(broken_rules(summary, SUMMARY_RULES)) == []
    summary["faults"]["delay"]["codes"] = ["a", 1]
    summary["clean_by"]["r3-rank"] = {}
    assert len(list(broken_rules(summary, SUMMARY_RULES))) == 2


@pytest.mark.parametrize("text", ["2.384e-07", "0.000e+00", "9.999e+99"])
def test_numbers_of_one_form(text: str) -> None:
    assert is_scientific(text) is None


@pytest.mark.parametrize(
    "text",
    ["2.38e-07", "2.384E-07", "12.384e-07", "+2.384e-07", "nan", "inf", "0.100e+00", "", 2.4],
)
def test_numbers_of_another_form(text: object) -> None:
    assert is_scientific(text) is not None


def test_one_is_not_true() -> None:
    assert one_of(1, 2)(True) is not None
    assert one_of(1, 2)([1]) is not None
    assert one_of(1, 2)(2) is None


@pytest.mark.parametrize("value", [None, [], "x", 1])
def test_what_is_no_object(value: object) -> None:
    assert list(broken_rules(value, CLEAN_RULES)) == ["must be an object"]
