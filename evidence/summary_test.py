"""The summary follows from the records alone."""

from __future__ import annotations

import pytest

from evidence.made_up import made_up_records
from evidence.matrix import FAULT_CODES
from evidence.summary import invariant_groups, largest, summarize


def test_counts_and_sums() -> None:
    summary = summarize(made_up_records(), 14_488, 1_000)
    assert summary["cases"] == {"clean": 192, "fault": 96, "total": 288}
    assert summary["outcomes"] == {"contract": 36, "deadline": 24, "ok": 192, "protocol": 36}
    assert summary["invariance"] == {"groups": 32, "identical": 32}
    assert (summary["ledger_entries"], summary["tape_bytes"]) == (14_488, 1_000)
    clean = summary["clean"]
    assert isinstance(clean, dict)
    assert clean["frames"] == 64 * 19 * (1 + 2 + 4)


def test_each_kind_of_fault_has_its_code() -> None:
    faults = summarize(made_up_records(), 0, 0)["faults"]
    assert isinstance(faults, dict)
    assert {kind: fault["codes"] for kind, fault in faults.items()} == {
        kind: [code] for kind, code in FAULT_CODES.items()
    }
    assert all(fault["cases"] == 12 for fault in faults.values())


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (["9.000e-08", "1.000e-07"], "1.000e-07"),
        (["0.000e+00"], "0.000e+00"),
        (["2.384e-07", "2.385e-07", "2.383e-07"], "2.385e-07"),
    ],
)
def test_the_largest_error_is_the_largest_number(values: list[str], wanted: str) -> None:
    assert largest(values) == wanted


def test_one_other_output_breaks_one_group() -> None:
    records = made_up_records()
    for record in records:
        if record["case"] == "clean-r2-b1-t4-s3-pairwise":
            record["output_sha256"] = "0" * 64
    assert invariant_groups(records) == 31


def test_in_rank_order_nothing_is_grouped() -> None:
    records = made_up_records()
    for record in records:
        if record["sum_order"] == "rank":
            record["output_sha256"] = "0" * 64
    assert invariant_groups(records) == 32
