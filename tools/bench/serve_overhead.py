"""What HTTP, observation and the scheduler add to a step: from the server's own steps, and without.

The controls are the same engine, scheduler, manifest and requests without the front end, turned by
hand in this process: once observed as the server's is (each frame's time noted, the last frames
kept), once bare. From all come full decode steps, consecutive ones, because between two steps lies
what the engine's thread did for clients. Shares of a period, which begins with each step:

    between steps = (period - step) / period: scheduler, inbox, publishing, telling observers
    outside ranks = (period - what the slowest rank computes in a step) / period: also frames, sums
                    and waiting, so what tensor parallelism costs
    HTTP          = (period with HTTP - period observed) / period with HTTP
    HTTP and scheduler = (period with HTTP - step observed) / period with HTTP: what lies between
                    two steps, and what HTTP adds to a step by running beside it
    observation   = (period observed - bare period) / period with HTTP
    all           = (period with HTTP - bare period) / period with HTTP
    processor     = what the coordinator's process used more than bare, per period with HTTP

HTTP runs beside the steps, while ranks compute, so it shows as time where it was in the way, and as
processor time wherever it ran.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from tools.bench.sample import Sample, table
from tools.bench.turned_engine import StepRecord


@dataclass(frozen=True)
class Paces:
    """Of consecutive full decode steps, in ms: from start to start, and from start to end.

    ranks: what the slowest rank computed in each; empty where nobody observes.
    """

    periods: list[float]
    steps: list[float]
    ranks: list[float]

    @property
    def period(self) -> float:
        return statistics.median(self.periods)

    @property
    def step(self) -> float:
        return statistics.median(self.steps)

    @property
    def between(self) -> float:
        """Share of a period that lies between two steps."""
        return (self.period - self.step) / self.period

    @property
    def outside(self) -> float:
        """Share of a period in which not even the slowest rank computes."""
        return (self.period - statistics.median(self.ranks)) / self.period


@dataclass(frozen=True)
class Wave:
    """Requests that decoded together. processor_ms: of the coordinator's process, per step."""

    paces: Paces
    processor_ms: float


@dataclass(frozen=True)
class Turn:
    """One after the other, so that whatever else the machine does hits all alike."""

    http: Wave
    observed: Wave
    bare: Wave

    def shares(self) -> dict[str, float]:
        """By name; see the top of this file. Fast tenths: what other programs disturbed least."""
        found = {
            "between steps, with HTTP": self.http.paces.between,
            "between steps, bare": self.bare.paces.between,
            "outside ranks, with HTTP": self.http.paces.outside,
        }
        for name, more, less in (
            ("HTTP", self.http, self.observed),
            ("observation", self.observed, self.bare),
            ("all", self.http, self.bare),
        ):
            medians = [wave.paces.period for wave in (more, less, self.http)]
            found[name] = (medians[0] - medians[1]) / medians[2]
            fast = [Sample.of(wave.paces.periods).p10 for wave in (more, less, self.http)]
            found[f"{name}, fast tenths"] = (fast[0] - fast[1]) / fast[2]
        found["HTTP and scheduler"] = (
            self.http.paces.period - self.observed.paces.step
        ) / self.http.paces.period
        used = self.http.processor_ms - self.bare.processor_ms
        found["processor"] = used / self.http.paces.period
        return found


@dataclass(frozen=True)
class Overhead:
    """batch: requests that decoded together."""

    batch: int
    turns: list[Turn]

    def shares(self) -> dict[str, Sample]:
        """By name; of each, one value per turn."""
        found = [turn.shares() for turn in self.turns]
        return {name: Sample.of([shares[name] for shares in found]) for name in found[0]}


def paces_of_server(steps: Sequence[Mapping[str, object]], batch: int) -> Paces:
    """From the `steps` of GET /v1/engine. Steps of fewer rows, or with a prefill, are left out."""
    found = Paces([], [], [])
    for before, after in pairwise(steps):
        if not _full(before, batch) or not _full(after, batch):
            continue
        if _number(after, "step") != _number(before, "step") + 1:
            continue
        found.periods.append((_number(after, "at_s") - _number(before, "at_s")) * 1e3)
        found.steps.append(_number(before, "duration_us") / 1e3)
        found.ranks.append(max(_computing_us(before)) / 1e3)
    return found


def paces_of_engine(steps: Sequence[StepRecord], batch: int) -> Paces:
    """The same of an engine turned by hand: steps of `batch` rows of one token, nobody entering."""
    found = Paces([], [], [])
    full = [
        len(step.plan.rows) == batch
        and not step.plan.admissions
        and all(len(row.token_ids) == 1 for row in step.plan.rows)
        for step in steps
    ]
    for (before, is_full), (after, stays_full) in pairwise(zip(steps, full, strict=True)):
        if is_full and stays_full:
            found.periods.append((after.started - before.started) * 1e3)
            found.steps.append(before.elapsed_s * 1e3)
    return found


def render(found: Overhead) -> str:
    """Markdown."""
    rows = []
    waves = {
        "with HTTP": [turn.http for turn in found.turns],
        "engine, observed": [turn.observed for turn in found.turns],
        "engine, bare": [turn.bare for turn in found.turns],
    }
    for name, taken in waves.items():
        periods = [value for wave in taken for value in wave.paces.periods]
        steps = [value for wave in taken for value in wave.paces.steps]
        samples = [Sample.of(v) for v in (periods, steps, [wave.processor_ms for wave in taken])]
        cells = [f"{s.median:.3f} ({s.p10:.3f} to {s.p90:.3f})" for s in samples]
        rows.append([name, *cells, str(len(periods))])
    head = ["", "period ms", "step ms", "coordinator's processor ms per step", "steps"]
    shares = [
        [name, *(f"{value:.1%}" for value in (share.median, share.p10, share.p90))]
        for name, share in found.shares().items()
    ]
    return (
        f"decode steps of {found.batch} requests, median (p10 to p90)\n\n{table(head, rows)}\n\n"
        + table(["share of a period", "median", "p10", "p90"], shares)
    )


def to_json(found: Overhead) -> dict[str, object]:
    """The same, with every period and step."""
    shares = {name: asdict(share) for name, share in found.shares().items()}
    return {**asdict(found), "shares": shares}


def _full(step: Mapping[str, object], batch: int) -> bool:
    return _number(step, "decode_rows") == batch and _number(step, "prefill_tokens") == 0


def _computing_us(step: Mapping[str, object]) -> list[float]:
    ranks = step["ranks"]
    return [float(str(rank["compute_us"])) for rank in ranks] if isinstance(ranks, list) else []


def _number(step: Mapping[str, object], name: str) -> float:
    return float(str(step[name]))
