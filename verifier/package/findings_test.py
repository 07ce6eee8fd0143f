"""Findings are bounded, printable and of one code each."""

from __future__ import annotations

import pytest

from verifier.package.findings import (
    FINDINGS_PER_CASE_MAX,
    MESSAGE_CHARACTERS_MAX,
    Finding,
    Findings,
    Log,
    printable,
    shown,
)


def test_a_log_reports_its_own_code_about_its_case() -> None:
    findings = Findings()
    log = Log(findings, "case.tape")
    log.found("first")
    log.of_case("clean-1").found("second")
    assert list(findings) == [
        Finding("case.tape", None, "first"),
        Finding("case.tape", "clean-1", "second"),
    ]
    assert list(findings)[1].sentence() == "case.tape clean-1: second"


def test_a_flood_is_counted() -> None:
    findings = Findings()
    for number in range(FINDINGS_PER_CASE_MAX + 7):
        Log(findings, "case.ledger", "a").found(str(number))
    kept = list(findings)
    assert len(kept) == FINDINGS_PER_CASE_MAX + 1
    assert kept[-1].message.startswith("7 ")


@pytest.mark.parametrize(
    ("got", "wanted", "same"),
    [(1, 1, True), (True, 1, False), (1, 1.0, False), (None, None, True), ("1", 1, False)],
)
def test_values_are_compared_with_their_types(got: object, wanted: object, same: bool) -> None:
    findings = Findings()
    assert Log(findings, "x").compare("value", got, wanted) is same
    assert bool(list(findings)) is not same


def test_messages_are_one_line_of_ascii() -> None:
    text = printable("a\nb\x1b[31m\ud800\u00e9" + "x" * 10_000)
    assert text.isascii()
    assert text.isprintable()
    assert len(text) < 2 * MESSAGE_CHARACTERS_MAX


@pytest.mark.parametrize("value", ["x" * 10**6, [0] * 10**6, {"a": "y" * 10**6}, 10**300, b"\0"])
def test_outside_values_are_shown_briefly(value: object) -> None:
    assert len(shown(value)) < 200
