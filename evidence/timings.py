"""How long the cases took, by kind; for people, never for the package."""

from __future__ import annotations

from collections.abc import Iterable

from evidence.matrix import Case
from evidence.pool import Finished


def case_kind(case: Case) -> str:
    """Clean cases by their ranks, fault cases by their fault."""
    return f"clean, {case.ranks} ranks" if case.fault is None else case.fault.kind


def timing_table(finished: Iterable[Finished]) -> str:
    """One line per kind: cases, mean and largest milliseconds of one case."""
    kinds: dict[str, list[float]] = {}
    for run, seconds in finished:
        kinds.setdefault(case_kind(run.case), []).append(1000 * seconds)
    head = f"{'kind of case':<22}{'cases':>6}{'mean ms':>10}{'max ms':>10}"
    rows = [
        f"{kind:<22}{len(times):>6}{sum(times) / len(times):>10.1f}{max(times):>10.1f}"
        for kind, times in sorted(kinds.items())
    ]
    return "\n".join([head, *rows])
