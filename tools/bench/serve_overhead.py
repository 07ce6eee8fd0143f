"""What HTTP and the scheduler add to a step, from turns of the same requests on the same ranks.

Three ways, in every round once: the requests are given to the engine (ENGINE); they come over HTTP,
from clients that read an answer when it is whole (HTTP: what clients on another machine would be);
over HTTP, from clients that read every event (STREAMED: on this machine, so they take processor
time from the ranks). All are observed alike. Of each turn counts the median period of full decode
steps; rounds are compared by the differences within each (`paired.shift`). With step = the median
step of ENGINE turns, shares of a step:

    scheduler          = (period - step) / step of ENGINE: what lies between two steps
    HTTP               = (period of HTTP - period of ENGINE) / step
    HTTP and scheduler = (period of HTTP - step) / step
    ..., clients here  = the same of STREAMED

What the engine's thread does for others while the ranks compute is in no step of its own; where it
is in the ranks' way it makes a step longer, with HTTP or without.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Final

from tools.bench.paired import Shift, shift
from tools.bench.sample import Sample, table


class Way(Enum):
    """How requests come."""

    ENGINE = "engine"
    HTTP = "http"
    STREAMED = "streamed"


_TITLES: Final = {
    Way.ENGINE: "engine alone",
    Way.HTTP: "HTTP",
    Way.STREAMED: "HTTP, clients here",
}


@dataclass(frozen=True)
class Pace:
    """Of consecutive full decode steps, in ms: from start to start, and from start to end."""

    periods: list[float]
    steps: list[float]

    @property
    def period(self) -> float:
        return statistics.median(self.periods)

    @property
    def step(self) -> float:
        return statistics.median(self.steps)


@dataclass(frozen=True)
class Turn:
    """Processor time in microseconds per step, prompts and ends included.

    engine_us, loop_us: of the coordinator's two threads; clients_us: of the clients' process.
    """

    pace: Pace
    engine_us: float
    loop_us: float
    clients_us: float


@dataclass(frozen=True)
class Overhead:
    """batch: requests that decoded together. rounds: one turn each way."""

    batch: int
    rounds: Sequence[Mapping[Way, Turn]]

    @property
    def step(self) -> float:
        """Median step of the engine alone, in ms."""
        return statistics.median(found[Way.ENGINE].pace.step for found in self.rounds)

    def shares(self) -> dict[str, Shift]:
        """Of a step; see the top of this file."""
        found = {"scheduler": self._share(Way.ENGINE, lambda engine: engine.step)}
        for way, more in ((Way.HTTP, ""), (Way.STREAMED, ", clients here")):
            found[f"HTTP{more}"] = self._share(way, lambda engine: engine.period)
            found[f"HTTP and scheduler{more}"] = self._share(way, lambda engine: engine.step)
        return found

    def _share(self, way: Way, base: Callable[[Pace], float]) -> Shift:
        """How much longer a period is that way than what `base` takes of the engine's turn."""
        differences = [
            turns[way].pace.period - base(turns[Way.ENGINE].pace) for turns in self.rounds
        ]
        return shift(differences).share_of(self.step)


def render(found: Overhead) -> str:
    """Markdown."""
    rows = []
    for way, title in _TITLES.items():
        turns = [turns[way] for turns in found.rounds]
        columns = [
            ([turn.pace.period for turn in turns], 3),
            ([turn.pace.step for turn in turns], 3),
            ([turn.engine_us for turn in turns], 0),
            ([turn.loop_us for turn in turns], 0),
            ([turn.clients_us for turn in turns], 0),
        ]
        samples = [(Sample.of(values), digits) for values, digits in columns]
        cells = [f"{s.median:.{n}f} ({s.p10:.{n}f} to {s.p90:.{n}f})" for s, n in samples]
        rows.append([title, *cells])
    head = ["", "period ms", "step ms", "engine's thread us", "loop's thread us", "clients us"]
    shares = [
        [name, *(f"{value:.1%}" for value in (share.estimate, share.low, share.high))]
        for name, share in found.shares().items()
    ]
    return (
        f"decode steps of {found.batch} requests, {len(found.rounds)} rounds, medians of turns "
        f"(p10 to p90); processor time per step\n\n{table(head, rows)}\n\n"
        + table(["share of a step", "estimate", "95 % from", "to"], shares)
    )


def to_json(found: Overhead) -> dict[str, object]:
    """The same, with every period and step."""
    return {
        "batch": found.batch,
        "rounds": [
            {way.value: asdict(turn) for way, turn in turns.items()} for turns in found.rounds
        ],
        "shares": {name: asdict(share) for name, share in found.shares().items()},
    }
