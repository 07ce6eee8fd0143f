"""The report's tables have one row per leaf and per case, and its prose says the same numbers."""

from __future__ import annotations

from evidence.made_up import made_up_records
from evidence.report import CASES_HEADING, NUMBERS_HEADING, case_rows, leaves, number_rows, report
from evidence.summary import summarize


def test_leaves_are_walked_in_key_order() -> None:
    value = {"b": {"y": 1, "x": "text"}, "a": ["p", "q"], "c": {}}
    assert list(leaves(value)) == [("a", "p, q"), ("b.x", "text"), ("b.y", "1")]


def test_rows_of_cases() -> None:
    records = {record["case"]: record for record in made_up_records()}
    clean = records["clean-r1-b1-t1-s1-rank"]
    fault = records["fault-delay-mlp-s2"]
    payload = fault["payload_bytes"]
    errors = f"{clean['max_abs_error']} | {clean['relative_l2_error']}"
    assert case_rows([clean, fault])[2:] == [
        f"| clean-r1-b1-t1-s1-rank | ok | - | - | {errors} | {clean['payload_bytes']} |",
        f"| fault-delay-mlp-s2 | deadline | deadline.receive | 1 | - | - | {payload} |",
    ]


def test_each_section_stands_once_and_holds_its_table() -> None:
    records = made_up_records()
    summary = summarize(records, 1, 2)
    lines = report(summary, records).split("\n")
    for heading, table in (
        (NUMBERS_HEADING, number_rows(summary)),
        (CASES_HEADING, case_rows(records)),
    ):
        at = lines.index(heading)
        assert lines.count(heading) == 1
        assert lines[at + 2 : at + 2 + len(table)] == table
        assert lines[at + 2 + len(table)] == ""


def test_the_prose_follows_the_numbers() -> None:
    records = made_up_records()
    summary = dict(summarize(records, 1, 2))
    summary["invariance"] = {"groups": 32, "identical": 17}
    assert "in 17 of 32" in " ".join(report(summary, records).split())
