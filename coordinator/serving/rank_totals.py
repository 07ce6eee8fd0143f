"""What steps add up to, per rank: frames, bytes, and where the time went."""

from __future__ import annotations

from typing import Final

from coordinator.serving.buckets import STEP_S, Buckets
from coordinator.step_timing import COORDINATOR, Event, ObservedStep, SpanKind, divide
from wire.frame import Side
from wire.limits import HEADER_BYTES

KINDS: Final = (SpanKind.COMPUTE, SpanKind.WAIT, SpanKind.WIRE)


class RankTotal:
    """One rank since the service started. frames, bytes: by sender; seconds: by kind of span.

    collective: from the first byte of an answer until its reply is written: the rank stands still.
    """

    def __init__(self) -> None:
        self.frames = dict.fromkeys(Side, 0)
        self.bytes = dict.fromkeys(Side, 0)
        self.seconds = dict.fromkeys(KINDS, 0.0)
        self.collective = Buckets(STEP_S)


class RankTotals:
    """ranks: by number. reduce_seconds: of all sums over ranks."""

    def __init__(self) -> None:
        self.ranks: list[RankTotal] = []
        self.reduce_seconds = 0.0

    def add(self, step: ObservedStep) -> None:
        """One step, complete or not; the engine's thread does this after every step."""
        ranks = self.ranks
        while len(ranks) < step.world_size:
            ranks.append(RankTotal())
        for sender, rank, _, _, header, _, _, _, _ in step.records:
            if header is not None:
                total = ranks[rank]
                total.frames[sender] += 1
                total.bytes[sender] += HEADER_BYTES + header[4] + header[5]
        for lane, kind, _, begun, ended in divide(
            step.notes, step.world_size, step.start, step.end
        ):
            if lane == COORDINATOR:
                self.reduce_seconds += ended - begun
            else:
                ranks[lane].seconds[kind] += ended - begun
        self._collectives(step)

    def _collectives(self, step: ObservedStep) -> None:
        answered: list[float | None] = [None] * step.world_size
        for lane, event, _, begun, ended in step.notes:
            if event is Event.WRITE:
                since = answered[lane]
                if since is not None:
                    self.ranks[lane].collective.observe(ended - since)
                    answered[lane] = None
            elif event is not Event.REDUCE and answered[lane] is None:
                answered[lane] = begun
