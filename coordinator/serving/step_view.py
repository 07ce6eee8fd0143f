"""Observed steps as JSON: what the page, the step trace and the flight recorder say of them.

Times are whole microseconds, cut, not rounded, so that spans never overlap.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from coordinator.serving.frame_statistics import StatisticsBudget
from coordinator.step_timing import COORDINATOR, ObservedStep, Span, SpanKind
from wire.recorder import Record, entry

_LANE_KINDS: Final = (SpanKind.COMPUTE, SpanKind.WAIT, SpanKind.WIRE)


def summary_json(step: ObservedStep, origin: float) -> dict[str, object]:
    """One step in a line. origin: where `at_s` counts from, on the clock of the step's times."""
    spans = step.spans()
    return {
        "step": step.plan.step,
        "at_s": round(step.start - origin, 6),
        "duration_us": _microseconds(step.duration),
        "rows": len(step.plan.rows),
        "prefill_tokens": step.prefill_tokens,
        "decode_rows": step.decode_rows,
        "reduce_us": _microseconds(seconds_of(spans, COORDINATOR, SpanKind.REDUCE)),
        "ranks": [_rank_json(spans, rank) for rank in range(step.world_size)],
    }


def seconds_of(spans: tuple[Span, ...], lane: int, kind: SpanKind) -> float:
    """How long a lane did one thing, all together."""
    return sum(span.end - span.start for span in spans if span[:2] == (lane, kind))


def step_json(step: ObservedStep) -> dict[str, object]:
    """GET /v1/engine/steps/{n}: where its time went, and its frames with their values' statistics.

    Frames that the recorder has forgotten are not there; `index` tells which.
    """
    return {
        "step": step.plan.step,
        "duration_us": _microseconds(step.duration),
        "spans": [span_json(span, step.start) for span in step.spans()],
        "frames": list(frames_json(step)),
    }


def span_json(span: Span, origin: float) -> dict[str, object]:
    """origin: where the start counts from."""
    start = _microseconds(span.start - origin)
    return {
        "lane": "coordinator" if span.lane == COORDINATOR else f"rank {span.lane}",
        "kind": span.kind.value,
        "phase": span.phase,
        "start_us": start,
        "duration_us": _microseconds(span.end - origin) - start,
    }


def frames_json(step: ObservedStep) -> Iterator[dict[str, object]]:
    """In the order in which the coordinator sent and consumed them."""
    budget = StatisticsBudget()
    # What has been dropped is the step's beginning.
    first = step.first_frame
    for at, record in enumerate(step.records):
        yield _frame_json(first + at, record, budget)


def _frame_json(index: int, record: Record, budget: StatisticsBudget) -> dict[str, object]:
    described = entry(index, record, with_digest=False)
    return {
        "index": index,
        "direction": described.direction,
        "rank": described.rank,
        "kind": described.kind,
        "phase": described.phase,
        "tensor": described.tensor,
        "shape": described.shape,
        "metadata_bytes": described.metadata_bytes,
        "payload_bytes": described.payload_bytes,
        "statistics": budget.statistics(record),
    }


def _rank_json(spans: tuple[Span, ...], rank: int) -> dict[str, object]:
    return {
        f"{kind.value}_us": _microseconds(seconds_of(spans, rank, kind)) for kind in _LANE_KINDS
    }


def _microseconds(seconds: float) -> int:
    return int(seconds * 1e6)
