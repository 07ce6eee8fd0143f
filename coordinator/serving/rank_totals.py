"""What steps add up to, per rank: frames, bytes, and where the time went."""

from __future__ import annotations

from typing import Final

from coordinator.serving.buckets import STEP_S, Buckets
from coordinator.step_timing import COORDINATOR, Event, ObservedStep, SpanKind, divide
from wire.frame import Side
from wire.limits import HEADER_BYTES

KINDS: Final = (SpanKind.COMPUTE, SpanKind.WAIT, SpanKind.WIRE)
# Looked up once, because they are used for every frame.
_WRITE, _REDUCE = Event.WRITE, Event.REDUCE


class RankTotal:
    """One rank since the service started. seconds: by kind of span.

    sent: by sender, how many frames and how many bytes.
    collective: from the first byte of an answer until its reply is written: the rank stands still.
    """

    def __init__(self) -> None:
        self.sent = {side: [0, 0] for side in Side}
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
        # By index, because this is done for every frame: sender, rank and header of the record;
        # lengths of metadata and payload of the header.
        sent_by = [rank.sent for rank in ranks]
        for record in step.records:
            header = record[4]
            if header is not None:
                sent = sent_by[record[1]][record[0]]
                sent[0] += 1
                sent[1] += HEADER_BYTES + header[4] + header[5]
        for lane, kind, _, begun, ended in divide(
            step.notes, step.world_size, step.start, step.end
        ):
            if lane == COORDINATOR:
                self.reduce_seconds += ended - begun
            else:
                ranks[lane].seconds[kind] += ended - begun
        self._collectives(step)

    def _collectives(self, step: ObservedStep) -> None:
        answered: dict[int, float] = {}
        for lane, event, _, begun, ended in step.notes:
            if event is _WRITE:
                if lane in answered:
                    self.ranks[lane].collective.observe(ended - answered.pop(lane))
            elif event is not _REDUCE and lane not in answered:
                answered[lane] = begun
