"""What `bench serve` found: percentiles, rates, and where every single request ended."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from errors import TPError
from tools.bench.sample import table
from tools.bench.serve_client import DONE, LEFT, Answer
from tools.bench.serve_loads import chunk_of, texts_of

POINTS: Final = (50, 90, 95, 99)


@dataclass(frozen=True)
class LoadReport:
    """One load. seconds: from the first due time to the last end.

    ends: how many requests ended how. milliseconds: percentiles by (kind, measure), of requests
    that were answered whole. probe_end: how the plain request after the load ended. left_over: live
    requests that the server still had then, None where it does not say.
    """

    name: str
    sent: int
    seconds: float
    ends: Mapping[str, int]
    completion_tokens: int
    milliseconds: Mapping[tuple[str, str], Mapping[int, float]]
    probe_end: str
    left_over: int | None

    @property
    def errors(self) -> int:
        """Requests that neither were answered whole nor left on purpose."""
        return self.sent - self.ends.get(DONE, 0) - self.ends.get(LEFT, 0)


def percentile(values: Sequence[float], point: int) -> float:
    """Nearest rank: the least value that at least `point` percent do not exceed."""
    ordered = sorted(values)
    return ordered[max(1, math.ceil(len(ordered) * point / 100)) - 1]


def report_of(
    name: str, sent: int, answers: Sequence[Answer], probe_end: str, left_over: int | None
) -> LoadReport:
    """Raises TPError `bench.lost` when a request is not accounted for.

    sent: as counted by the load, not by what came back.
    """
    ends = Counter(answer.end for answer in answers)
    if len(answers) != sent or "" in ends:
        raise TPError("bench.lost", f"{name}: {sent} requests were sent, these ended: {dict(ends)}")
    whole = [answer for answer in answers if answer.end == DONE]
    times: dict[tuple[str, str], list[float]] = {}
    tokens = 0
    for answer in whole:
        tokens += completion_tokens(answer)
        came = [at for at, _ in texts_of(answer)]
        measures = {
            "TTFT": [at - answer.due for at in came[:1]],
            "ITL": [after - before for before, after in pairwise(came)],
            "E2E": [answer.ended - answer.due],
        }
        for measure, values in measures.items():
            times.setdefault((answer.kind, measure), []).extend(values)
    first = min((answer.due for answer in answers), default=0.0)
    last = max((answer.ended for answer in answers), default=0.0)
    percentiles = {
        key: {point: percentile(values, point) * 1e3 for point in POINTS}
        for key, values in sorted(times.items())
        if values
    }
    return LoadReport(name, sent, last - first, ends, tokens, percentiles, probe_end, left_over)


def completion_tokens(answer: Answer) -> int:
    """As the server counts them. Raises TPError for a stream without its usage."""
    for _, event in reversed(answer.events):
        usage: object = chunk_of(event).get("usage")
        if isinstance(usage, dict):
            return int(usage["completion_tokens"])
    raise TPError("bench.http", "a whole stream came without its usage")


def render(reports: Sequence[LoadReport]) -> str:
    """Markdown."""
    head = ["load", "requests", "answered", "left", "errors", "s", "requests/s", "tokens/s"]
    rows = []
    for found in reports:
        rates = (found.ends.get(DONE, 0) / found.seconds, found.completion_tokens / found.seconds)
        counts = (found.sent, found.ends.get(DONE, 0), found.ends.get(LEFT, 0), found.errors)
        cells = [*map(str, counts), f"{found.seconds:.2f}", *(f"{rate:.1f}" for rate in rates)]
        rows.append([found.name, *cells])
    times = [
        [found.name, kind, measure, *(f"{points[point]:.1f}" for point in POINTS)]
        for found in reports
        for (kind, measure), points in found.milliseconds.items()
    ]
    columns = ["load", "kind", "ms", *(f"p{point}" for point in POINTS)]
    return "\n\n".join([table(head, rows), table(columns, times), _after(reports)])


def to_json(reports: Sequence[LoadReport]) -> list[dict[str, object]]:
    """The same."""
    return [
        {
            "load": found.name,
            "sent": found.sent,
            "seconds": found.seconds,
            "ends": dict(found.ends),
            "errors": found.errors,
            "completion_tokens": found.completion_tokens,
            "milliseconds": {
                f"{kind} {measure}": {f"p{point}": value for point, value in points.items()}
                for (kind, measure), points in found.milliseconds.items()
            },
            "probe": found.probe_end,
            "left_over": found.left_over,
        }
        for found in reports
    ]


def _after(reports: Sequence[LoadReport]) -> str:
    lines = []
    for found in reports:
        others = {end: count for end, count in found.ends.items() if end not in (DONE, LEFT)}
        errors = ", ".join(f"{count} x {end}" for end, count in sorted(others.items()))
        held = "unknown" if found.left_over is None else str(found.left_over)
        lines.append(
            f"- {found.name}: every request is accounted for; errors: {errors or 'none'}; a plain "
            f"request afterwards: {found.probe_end}; live requests left: {held}"
        )
    return "\n".join(lines)
