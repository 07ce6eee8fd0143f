"""Every metric is there from the start, moves when it should, and never goes back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from coordinator.serving.buckets import Buckets
from coordinator.serving.fake_served import FakeServed
from coordinator.serving.fake_steps import FRAMES, observed
from coordinator.serving.metrics import Metrics
from coordinator.serving.served import Phase
from errors import ProtocolError
from wire.limits import HEADER_BYTES
from wire.recorder import Recorder

GONE = ProtocolError("closed", "the stream ended", rank=1, phase="plan")


@dataclass
class Measured:
    metrics: Metrics
    served: FakeServed

    def samples(self) -> dict[str, float]:
        """As a scraper has them: `name{labels}` -> value."""
        text = self.metrics.exposition(self.served).decode("utf-8")
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = ",".join(f'{key}="{sample.labels[key]}"' for key in sorted(sample.labels))
                found[sample.name + (f"{{{labels}}}" if labels else "")] = sample.value
        return found


@pytest.fixture
def measured() -> Iterator[Measured]:
    with FakeServed() as served:
        yield Measured(Metrics("f" * 64), served)


def told(action: Callable[[Metrics], None]) -> Callable[[Measured], None]:
    return lambda measured: action(measured.metrics)


def restarted(measured: Measured) -> None:
    measured.served.restarts += 1


# What happens, and by how much which sample moves.
MOVES: dict[str, tuple[Callable[[Measured], None], dict[str, float]]] = {
    "a step": (
        told(lambda metrics: metrics.stepped(observed(0))),
        {
            'rankproof_steps_total{outcome="complete"}': 1,
            'rankproof_steps_total{outcome="failed"}': 0,
            "rankproof_step_seconds_count": 1,
            "rankproof_step_seconds_sum": 10,
            'rankproof_step_seconds_bucket{le="5.0"}': 0,
            'rankproof_step_seconds_bucket{le="10.0"}': 1,
            'rankproof_tokens_total{kind="prefill"}': 3,
            'rankproof_tokens_total{kind="decode"}': 1,
            'rankproof_tokens_total{kind="sampled"}': 1,
            'rankproof_rank_frames_total{direction="send",rank="0"}': 2,
            'rankproof_rank_frames_total{direction="receive",rank="1"}': 1,
            'rankproof_rank_seconds_total{kind="compute",rank="0"}': 4,
            'rankproof_rank_seconds_total{kind="wait",rank="0"}': 3,
            'rankproof_rank_seconds_total{kind="wire",rank="1"}': 3,
            "rankproof_reduce_seconds_total": 1,
            'rankproof_collective_seconds_count{rank="0"}': 1,
            'rankproof_collective_seconds_sum{rank="0"}': 5,
            'rankproof_collective_seconds_sum{rank="1"}': 4,
        },
    ),
    "a failed step": (
        told(lambda metrics: metrics.stepped(observed(0, failure=GONE))),
        {
            'rankproof_steps_total{outcome="complete"}': 0,
            'rankproof_steps_total{outcome="failed"}': 1,
            'rankproof_tokens_total{kind="sampled"}': 0,
        },
    ),
    "a request leaves the queue": (
        told(lambda metrics: metrics.queued(0.3)),
        {
            "rankproof_queue_seconds_count": 1,
            "rankproof_queue_seconds_sum": 0.3,
            'rankproof_queue_seconds_bucket{le="0.25"}': 0,
            'rankproof_queue_seconds_bucket{le="0.5"}': 1,
        },
    ),
    "a first token": (
        told(lambda metrics: metrics.first_token(0.02)),
        {"rankproof_time_to_first_token_seconds_count": 1},
    ),
    "a further token": (
        told(lambda metrics: metrics.inter_token(0.001)),
        {
            "rankproof_inter_token_seconds_count": 1,
            'rankproof_inter_token_seconds_bucket{le="0.001"}': 1,
        },
    ),
    "a good end": (
        told(lambda metrics: metrics.finished("stop", None)),
        {'rankproof_requests_total{outcome="stop"}': 1},
    ),
    "an end with an error": (
        told(lambda metrics: metrics.finished("rejected", "overload.queue")),
        {
            'rankproof_requests_total{outcome="rejected"}': 1,
            'rankproof_errors_total{code="overload.queue"}': 1,
        },
    ),
    "a failed group": (
        told(lambda metrics: metrics.failed("protocol.closed", 1)),
        {'rankproof_failures_total{code="protocol.closed",rank="1"}': 1},
    ),
    "a failure of nobody known": (
        told(lambda metrics: metrics.failed("deadline.handshake", None)),
        {'rankproof_failures_total{code="deadline.handshake",rank=""}': 1},
    ),
    "a lost line": (
        told(lambda metrics: metrics.lost("trace")),
        {'rankproof_trace_lost_total{sink="trace"}': 1},
    ),
    "a restart": (restarted, {"rankproof_restarts_total": 1}),
}


@pytest.mark.parametrize("name", MOVES)
def test_what_moves(measured: Measured, name: str) -> None:
    happens, expected = MOVES[name]
    before = measured.samples()
    happens(measured)
    after = measured.samples()
    moved = {key: after[key] - before.get(key, 0.0) for key in expected}
    assert moved == pytest.approx(expected)


def test_bytes_are_those_of_headers_metadata_and_payloads(measured: Measured) -> None:
    step = observed(0)
    measured.metrics.stepped(step)
    after = measured.samples()
    sent = [
        r.header for r in step.records if r.rank == 1 and r.header and r.sender.value != "worker"
    ]
    size = sum(HEADER_BYTES + header.metadata_bytes + header.payload_bytes for header in sent)
    assert after['rankproof_rank_bytes_total{direction="send",rank="1"}'] == size


GAUGES = {
    "rankproof_epoch": 1,
    'rankproof_phase{phase="serving"}': 1,
    'rankproof_phase{phase="loading"}': 0,
    "rankproof_queue_depth": 0,
    "rankproof_live_requests": 0,
    "rankproof_slots_limit": 4,
    "rankproof_pages_limit": 256,
    'rankproof_rank_resident_requests{rank="1"}': 0,
    'rankproof_rank_slots_used{rank="0"}': 0,
    'rankproof_rank_pages_used{rank="0"}': 0,
    'rankproof_rank_up{rank="0"}': 1,
    'rankproof_rank_loaded_bytes{rank="0"}': 100,
    f'rankproof_build_info{{source="{"f" * 64}"}}': 1,
}


def test_what_is_true_now(measured: Measured) -> None:
    found = measured.samples()
    assert {name: found[name] for name in GAUGES} == GAUGES
    assert found["rankproof_progress_age_seconds"] >= 0
    assert found['rankproof_rank_last_seen_seconds{rank="1"}'] >= 0
    # Of this process; a rank of the fake has none.
    assert found["process_resident_memory_bytes"] > 0
    assert 'rankproof_rank_rss_bytes{rank="0"}' not in found


def test_counters_go_on_over_a_restart(measured: Measured) -> None:
    measured.metrics.began(2, lambda rank: "idle")
    measured.metrics.stepped(observed(0))
    before = measured.samples()
    measured.served.phase = Phase.LOADING
    measured.served.restarts = 1
    measured.metrics.began(2, lambda rank: "idle")
    measured.metrics.stepped(observed(0, Recorder(keep_bytes=False)))
    after = measured.samples()
    frames = 'rankproof_rank_frames_total{direction="send",rank="0"}'
    assert (before[frames], after[frames]) == (2, 4)
    for name, value in before.items():
        if "_total" in name or "_bucket" in name or name.endswith(("_count", "_sum")):
            assert after[name] >= value, name
    assert FRAMES == 6


def test_buckets_count_what_is_at_most_their_bound() -> None:
    buckets = Buckets((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 3.0):
        buckets.observe(value)
    assert buckets.filled() == ([("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)], 6.0)
