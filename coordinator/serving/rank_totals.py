"""What steps add up to, per rank: frames, bytes, and where the time went."""

from __future__ import annotations

from typing import Final

from coordinator.serving.buckets import STEP_S, Buckets
from coordinator.step_timing import COORDINATOR, Event, ObservedStep, SpanKind
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
        """One step, complete or not."""
        ranks = self.ranks
        while len(ranks) < step.world_size:
            ranks.append(RankTotal())
        for record in step.records:
            header = record.header
            if header is not None:
                total = ranks[record.rank]
                total.frames[record.sender] += 1
                total.bytes[record.sender] += (
                    HEADER_BYTES + header.metadata_bytes + header.payload_bytes
                )
        for span in step.spans():
            length = span.end - span.start
            if span.lane == COORDINATOR:
                self.reduce_seconds += length
            else:
                ranks[span.lane].seconds[span.kind] += length
        self._collectives(step)

    def _collectives(self, step: ObservedStep) -> None:
        answered: dict[int, float] = {}
        for lane, event, _, _, ended in step.notes:
            if event is Event.WRITE:
                since = answered.pop(lane, None)
                if since is not None:
                    self.ranks[lane].collective.observe(ended - since)
            elif event is not Event.REDUCE:
                answered.setdefault(lane, ended)
