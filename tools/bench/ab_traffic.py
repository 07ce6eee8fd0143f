"""The traffic of `bench ab`, the same in every configuration, and what is measured of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from errors import MisuseError
from program.plan import INTEGER_MAX
from tools.bench.ab_overlap import (
    Evidence,
    Overlap,
    demand_none,
    demand_overlap,
    mixed_steps,
    overlap,
)
from tools.bench.turned_engine import StepRecord, Stream, TurnedEngine

# A decoder must outlive the long prefill by this many tokens, so that the overlap has an end.
_SPARE_TOKENS: Final = 4

Values = Mapping[tuple[str, str], list[float]]


@dataclass(frozen=True)
class Traffic:
    """In tokens: a short request's prompt and answer, the long prompt, and a step's budget.

    batch: requests at once, at least 2. repeats: of each kind of traffic per round.
    """

    prompt: int
    tokens: int
    batch: int
    long: int
    chunk: int
    repeats: int

    @property
    def decoder_tokens(self) -> int:
        """What a decoder of the mixed traffic answers: more than the long prefill has steps."""
        steps = -(-self.long // (self.chunk - self.batch + 1))
        return max(self.tokens, steps + _SPARE_TOKENS)

    @property
    def positions_max(self) -> int:
        return max(self.prompt + self.decoder_tokens, self.long + self.tokens)


@dataclass(frozen=True)
class Mixed:
    """Overlap of the mixed traffic and of its negative control. control_steps: mixed ones."""

    mixed: Overlap
    control: Overlap
    control_steps: int


def measure(engine: TurnedEngine, traffic: Traffic) -> tuple[Values, Mixed]:
    """All kinds of traffic once warm; by (traffic, measure), times in ms and rates per second.

    Raises TPError `bench.overlap` when the mixed traffic did not overlap, or its control did.
    """
    driver = _Driver(engine, traffic)
    driver.run_together(1)
    values: dict[tuple[str, str], list[float]] = {}
    for _ in range(traffic.repeats):
        for kind, count in (("solo", 1), ("concurrent", traffic.batch)):
            first = len(engine.steps)
            measured = of_requests(driver.run_together(count))
            measured |= of_steps(engine.steps[first:], count, traffic.prompt)
            _add(values, kind, measured)
    mixed = None
    for _ in range(traffic.repeats):
        found, mixed = driver.run_mixed()
        for kind, measured in found.items():
            _add(values, kind, measured)
    if mixed is None:
        raise MisuseError("traffic that is not repeated shows nothing")
    return values, mixed


def of_requests(streams: Sequence[Stream]) -> dict[str, list[float]]:
    """TTFT, TPOT and ITL as clients saw them, ms; and tokens per second over all of them."""
    gaps = [(after - before) * 1e3 for s in streams for before, after in pairwise(s.times)]
    ends = [stream.times[-1] for stream in streams]
    elapsed = max(ends) - min(stream.submitted for stream in streams)
    return {
        "TTFT ms": [(stream.times[0] - stream.submitted) * 1e3 for stream in streams],
        "TPOT ms": [
            (stream.times[-1] - stream.times[0]) * 1e3 / (len(stream.times) - 1)
            for stream in streams
            if len(stream.times) > 1
        ],
        "ITL ms": gaps,
        "tokens/s": [sum(len(stream.times) for stream in streams) / elapsed],
    }


def of_steps(steps: Sequence[StepRecord], batch: int, prompt: int) -> dict[str, list[float]]:
    """Prefill of all prompts together, and decode steps of the full batch: ms, wall and processor.

    prompt: tokens of every request's prompt. A step of both kinds counts as prefill.
    """
    prefills = [step for step in steps if _first_position(step) < prompt]
    decodes = [
        step for step in steps if _first_position(step) >= prompt and len(step.plan.rows) == batch
    ]
    return {
        "prefill ms": [sum(step.elapsed_s for step in prefills) * 1e3],
        "decode step ms": [step.elapsed_s * 1e3 for step in decodes],
        "decode step processor ms": [step.processor_s * 1e3 for step in decodes],
    }


def _first_position(step: StepRecord) -> int:
    """The lowest position that is computed; beyond every prompt for a step without rows."""
    return min((row.start_position for row in step.plan.rows), default=INTEGER_MAX)


class _Driver:
    """Requests with prompts that differ, in an order that depends on nothing."""

    def __init__(self, engine: TurnedEngine, traffic: Traffic) -> None:
        self._engine = engine
        self._traffic = traffic

    def run_together(self, count: int) -> list[Stream]:
        streams = [self._short(index, self._traffic.tokens) for index in range(count)]
        self._engine.finish(streams)
        return streams

    def run_mixed(self) -> tuple[dict[str, dict[str, list[float]]], Mixed]:
        """Decoders run, then a long prompt comes; and the same requests one after the other."""
        engine, traffic = self._engine, self._traffic
        first = len(engine.steps)
        decoders = [
            self._short(index, traffic.decoder_tokens) for index in range(traffic.batch - 1)
        ]
        while not all(stream.tokens for stream in decoders):
            engine.turn()
        long = self._long()
        streams = [*decoders, long]
        engine.finish(streams)
        mixed = overlap(_evidence(engine.steps[first:], streams), long.request_id)
        demand_overlap(mixed)

        first = len(engine.steps)
        alone = []
        for index in range(traffic.batch):
            last = index == traffic.batch - 1
            alone.append(self._long() if last else self._short(index, traffic.decoder_tokens))
            engine.finish(alone)
        control = _evidence(engine.steps[first:], alone)
        found = overlap(control, alone[-1].request_id)
        steps = mixed_steps(control)
        demand_none(found, steps)

        measured = {"mixed": _of_mixed(decoders, long), "control": _rate(alone)}
        return measured, Mixed(mixed, found, steps)

    def _short(self, index: int, tokens: int) -> Stream:
        return self._engine.submit(self._prompt(index, self._traffic.prompt), tokens)

    def _long(self) -> Stream:
        prompt = self._prompt(self._traffic.batch, self._traffic.long)
        return self._engine.submit(prompt, self._traffic.tokens)

    def _prompt(self, index: int, count: int) -> list[int]:
        vocabulary = self._engine.setup.config.vocab_size
        return [(7 * position + 13 * index + 1) % vocabulary for position in range(count)]


def _of_mixed(decoders: Sequence[Stream], long: Stream) -> dict[str, list[float]]:
    """What the decoders felt while the long prompt was prefilled, and how long that took."""
    during = [
        (after - before) * 1e3
        for stream in decoders
        for before, after in pairwise(stream.times)
        if long.submitted < after <= long.times[0]
    ]
    ttft = (long.times[0] - long.submitted) * 1e3
    return {"ITL of decoders ms": during, "TTFT of long ms": [ttft], **_rate([*decoders, long])}


def _rate(streams: Sequence[Stream]) -> dict[str, list[float]]:
    return {"tokens/s": of_requests(streams)["tokens/s"]}


def _evidence(steps: Sequence[StepRecord], streams: Sequence[Stream]) -> Evidence:
    tokens = [(token.request_id, token.step) for stream in streams for _, token in stream.tokens]
    return Evidence(steps, tokens)


def _add(
    values: dict[tuple[str, str], list[float]], kind: str, found: Mapping[str, list[float]]
) -> None:
    for name, measured in found.items():
        values.setdefault((kind, name), []).extend(measured)
