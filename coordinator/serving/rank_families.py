"""Metrics of each rank: what steps added up to, and what is known of its process and state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

from coordinator.request import RequestState
from coordinator.serving.metric_families import counter, gauge, histogram
from coordinator.serving.rank_totals import KINDS, RankTotals
from coordinator.serving.served import RankPhase, Served, Status
from program.slots import SlotTable
from wire.frame import Side
from wire.ledger import RECEIVE, SEND

_DIRECTIONS: Final = {Side.COORDINATOR: SEND, Side.WORKER: RECEIVE}


def total_families(totals: RankTotals) -> Iterator[Metric]:
    """Counters over all groups."""
    ranks = list(enumerate(totals.ranks))
    ways = [(str(rank), total, side) for rank, total in ranks for side in Side]
    frames = {(rank, _DIRECTIONS[side]): total.sent[side][0] for rank, total, side in ways}
    sizes = {(rank, _DIRECTIONS[side]): total.sent[side][1] for rank, total, side in ways}
    labels = ("rank", "direction")
    yield counter("rank_frames", "Frames of steps, as the coordinator sees them", labels, frames)
    yield counter("rank_bytes", "Bytes of these frames, headers included", labels, sizes)
    seconds = {
        (str(rank), kind.value): total.seconds[kind] for rank, total in ranks for kind in KINDS
    }
    text = "Time in steps: computing, waiting for others, on the wire"
    yield counter("rank_seconds", text, ("rank", "kind"), seconds)
    yield counter("reduce_seconds", "Time in sums over ranks", (), totals.reduce_seconds)
    filled = {str(rank): total.collective.filled() for rank, total in ranks}
    text = "From a rank's answer in a phase until the reply was written to it"
    yield histogram("collective_seconds", text, ("rank",), filled)


def rank_families(status: Status, served: Served) -> Iterator[Metric]:
    """What is true now. Slots and pages are of the table that every rank holds."""
    snapshot = status.snapshot
    table = SlotTable.empty(served.limits) if snapshot is None else snapshot.scheduler.table
    states = () if snapshot is None else snapshot.scheduler.states
    waiting = sum(state is RequestState.WAITING for _, state in states)
    yield gauge("queue_depth", "Requests that wait for a slot", (), waiting)
    yield gauge("live_requests", "Requests that have not ended", (), len(states))
    yield gauge("slots_limit", "Requests that may be resident at once", (), table.limits.slots)
    yield gauge("pages_limit", "Pages of each rank", (), table.limits.pages)
    residents = len(table.residents)
    pages = table.limits.pages - table.free_pages
    names = [str(load.rank) for load in status.ranks]
    for name, text, value in (
        ("rank_resident_requests", "Requests whose state the rank holds", residents),
        ("rank_slots_used", "Slots that are held", residents),
        ("rank_pages_used", "Pages that are held", pages),
    ):
        yield gauge(name, text, ("rank",), dict.fromkeys(names, value))
    yield from _process_families(status, served.clock())


def _process_families(status: Status, now: float) -> Iterator[Metric]:
    sizes: dict[str, float] = {}
    ages: dict[str, float] = {}
    loaded: dict[str, float] = {}
    up: dict[str, float] = {}
    for load in status.ranks:
        rank = str(load.rank)
        up[rank] = float(load.phase is RankPhase.READY)
        loaded[rank] = load.bytes_loaded
        if load.rss_bytes is not None:
            sizes[rank] = load.rss_bytes
        if load.last_seen is not None:
            ages[rank] = max(0.0, now - load.last_seen)
    yield gauge("rank_up", "1 when the rank is loaded and runs", ("rank",), up)
    yield gauge("rank_loaded_bytes", "Weights and state, as far as loaded", ("rank",), loaded)
    yield gauge("rank_rss_bytes", "Resident size of its process", ("rank",), sizes)
    yield gauge("rank_last_seen_seconds", "Since it last answered", ("rank",), ages)
