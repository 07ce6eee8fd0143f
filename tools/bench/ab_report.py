"""What `bench ab` found, as tables and as JSON: medians with spread, and ratios round by round."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from tools.bench.ab_traffic import Mixed, Values
from tools.bench.sample import Sample, table

_MIB: Final = 1 << 20
_SPREAD: Final = (
    "Median (p10 to p90) of {} interleaved rounds; x is the median of each round's ratio to {}"
)
_CONTROL: Final = (
    "A long prompt while others decode; and the negative control, the same requests one after the "
    "other, which must show no overlap and showed none"
)


@dataclass(frozen=True)
class RankMemory:
    """Bytes of one rank. weights, state: its load report. slot: state of one request.

    peak_rss: after all traffic.
    """

    weights: int
    state: int
    slot: int
    peak_rss: int


@dataclass(frozen=True)
class Round:
    """One configuration, started afresh and measured once."""

    values: Values
    mixed: Mixed
    ranks: tuple[RankMemory, ...]


@dataclass(frozen=True)
class Findings:
    """rounds: by configuration, in order of rounds. baseline: what ratios are taken against.

    context: what the numbers depend on, by name. other_cores: what other programs used meanwhile.
    """

    rounds: Mapping[str, Sequence[Round]]
    baseline: str
    context: Mapping[str, str]
    other_cores: float


def ratio(rounds: Sequence[Round], base: Sequence[Round], key: tuple[str, str]) -> Sample:
    """Median over baseline's median, taken within each round, so that drift hits both alike."""
    return Sample.of(
        [
            statistics.median(ours.values[key]) / statistics.median(theirs.values[key])
            for ours, theirs in zip(rounds, base, strict=True)
        ]
    )


def pooled(rounds: Sequence[Round], key: tuple[str, str]) -> Sample:
    return Sample.of([value for found in rounds for value in found.values[key]])


def render(findings: Findings) -> str:
    """Markdown."""
    context = "\n".join(f"- {name}: {value}" for name, value in findings.context.items())
    busy = f"- other programs used {findings.other_cores:.2f} cores meanwhile"
    spread = _SPREAD.format(len(findings.rounds[findings.baseline]), findings.baseline)
    return "\n\n".join(
        [
            f"{context}\n{busy}",
            "Bytes per rank",
            _memory_table(findings),
            spread,
            _times_table(findings),
            _CONTROL,
            _overlap_table(findings),
        ]
    )


def to_json(findings: Findings) -> dict[str, object]:
    """The same, with each round's values."""
    base = findings.rounds[findings.baseline]
    return {
        "context": dict(findings.context),
        "other_cores": findings.other_cores,
        "baseline": findings.baseline,
        "configurations": {
            name: {
                "ranks": [asdict(rank) for rank in rounds[-1].ranks],
                "overlap": [asdict(found.mixed) for found in rounds],
                "measures": {
                    " ".join(key): {
                        **asdict(pooled(rounds, key)),
                        "ratio": asdict(ratio(rounds, base, key)),
                        "rounds": [found.values[key] for found in rounds],
                    }
                    for key in rounds[0].values
                },
            }
            for name, rounds in findings.rounds.items()
        },
    }


def _memory_table(findings: Findings) -> str:
    head = ["configuration", "rank", "weights MiB", "state MiB", "one request MiB", "peak RSS MiB"]
    rows = []
    for name, rounds in findings.rounds.items():
        for rank, held in enumerate(rounds[-1].ranks):
            peak = max(found.ranks[rank].peak_rss for found in rounds)
            sizes = (held.weights, held.state, held.slot, peak)
            rows.append([name, str(rank), *(f"{size / _MIB:.2f}" for size in sizes)])
    return table(head, rows)


def _times_table(findings: Findings) -> str:
    base = findings.rounds[findings.baseline]
    head = ["traffic", "measure"]
    for name in findings.rounds:
        head += [name] if name == findings.baseline else [name, "x"]
    rows = []
    for key in base[0].values:
        cells = list(key)
        for name, rounds in findings.rounds.items():
            sample = pooled(rounds, key)
            cells.append(f"{sample.median:.2f} ({sample.p10:.2f} to {sample.p90:.2f})")
            if name != findings.baseline:
                cells.append(f"{ratio(rounds, base, key).median:.2f}")
        rows.append(cells)
    return table(head, rows)


def _overlap_table(findings: Findings) -> str:
    head = ["configuration", "chunks", "mixed steps", "tokens meanwhile"]
    head += ["control: chunks", "mixed steps", "tokens meanwhile"]
    rows = []
    for name, rounds in findings.rounds.items():
        found = rounds[-1].mixed
        counts = (found.mixed.chunks, found.mixed.mixed_steps, found.mixed.tokens_meanwhile)
        control = (found.control.chunks, found.control_steps, found.control.tokens_meanwhile)
        rows.append([name, *map(str, counts), *map(str, control)])
    return table(head, rows)
