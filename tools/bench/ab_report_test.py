"""Ratios are taken round by round, and everything measured is in both outputs."""

from __future__ import annotations

import json

from tools.bench.ab_overlap import Overlap
from tools.bench.ab_report import Findings, RankMemory, Round, pooled, ratio, render, to_json
from tools.bench.ab_traffic import Mixed

KEY = ("solo", "TTFT ms")
MIXED = Mixed(Overlap(8, 7, 21), Overlap(8, 0, 0), 0)
MEMORY = RankMemory(3 << 20, 2 << 20, 1 << 20, 5 << 20)


def rounds(*values: list[float], ranks: int = 1) -> list[Round]:
    return [Round({KEY: found}, MIXED, (MEMORY,) * ranks) for found in values]


def findings() -> Findings:
    found = {"two": rounds([3.0], [30.0], ranks=2), "one": rounds([2.0], [20.0])}
    return Findings(found, "one", {"machine": "a clock"}, 0.25)


def test_drift_between_rounds_does_not_change_the_ratio() -> None:
    # The machine was ten times slower in the second round.
    found = ratio(rounds([3.0], [30.0]), rounds([2.0], [20.0]), KEY)
    assert (found.median, found.p10, found.p90) == (1.5, 1.5, 1.5)
    assert pooled(rounds([1.0, 3.0], [2.0]), KEY).median == 2.0


def test_tables() -> None:
    text = render(findings())
    for line in (
        "- machine: a clock",
        "- other programs used 0.25 cores meanwhile",
        "| two | 1 | 3.00 | 2.00 | 1.00 | 5.00 |",
        "| solo | TTFT ms | 16.50 (3.00 to 30.00) | 1.50 | 11.00 (2.00 to 20.00) |",
        "| two | 8 | 7 | 21 | 8 | 0 | 0 |",
    ):
        assert line in text.splitlines()


def test_json() -> None:
    found = json.loads(json.dumps(to_json(findings()), allow_nan=False))
    two = found["configurations"]["two"]
    assert two["measures"]["solo TTFT ms"]["ratio"]["median"] == 1.5
    assert two["measures"]["solo TTFT ms"]["rounds"] == [[3.0], [30.0]]
    assert [rank["weights"] for rank in two["ranks"]] == [3 << 20, 3 << 20]
    assert two["overlap"][0]["control_steps"] == 0
    assert found["baseline"] == "one"
