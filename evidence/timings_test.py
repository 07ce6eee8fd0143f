"""The table of times has a line for each kind of case."""

from __future__ import annotations

from evidence.matrix import all_cases
from evidence.pool import Finished
from evidence.record import CaseRun
from evidence.timings import case_kind, timing_table


def test_kinds() -> None:
    kinds = {case_kind(case) for case in all_cases()}
    assert {"clean, 1 ranks", "clean, 4 ranks", "delay", "rank_exit"} <= kinds
    assert len(kinds) == 3 + 8


def test_a_line_for_each_kind() -> None:
    finished = [
        Finished(CaseRun(case, (), b"", b"", None, None), 0.25 if case.seed == 1 else 0.05)
        for case in all_cases()
    ]
    head, *rows = timing_table(finished).split("\n")
    assert head.split()[-4:] == ["mean", "ms", "max", "ms"]
    assert [row.split()[-3:] for row in rows if row.startswith("delay")] == [
        ["12", "100.0", "250.0"]
    ]
