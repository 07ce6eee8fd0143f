"""What is measured, in the text format that Prometheus reads (docs/spec/http.md H43).

Counters count from the start of the service, over all groups and restarts. Whoever is measured adds
plain numbers; families are built when somebody asks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from threading import Lock
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from coordinator.serving.buckets import LATENCY_S, STEP_S, Buckets
from coordinator.serving.metric_families import counter, gauge, histogram, info
from coordinator.serving.rank_families import rank_families, total_families
from coordinator.serving.rank_totals import RankTotals
from coordinator.serving.served import Phase, Served
from coordinator.step_timing import Doing, ObservedStep

METRICS_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class Metrics:
    """Implements `StepObserver` and `RequestObserver`.

    source: identity of the running sources, for `build_info`.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._totals = RankTotals()
        self._steps = Counter[str]()
        self._tokens = Counter[str]()
        self._step_seconds = Buckets(STEP_S)
        self._queue = Buckets(LATENCY_S)
        self._first = Buckets(LATENCY_S)
        self._between = Buckets(LATENCY_S)
        self._outcomes = Counter[str]()
        self._errors = Counter[str]()
        self._failures = Counter[tuple[str, str]]()
        self._lost = Counter[str]()
        self._lock = Lock()

    def began(self, world_size: int, doing: Doing) -> None:
        """See `StepObserver.began`. Everything counts on."""

    def stepped(self, step: ObservedStep) -> None:
        """See `StepObserver.stepped`."""
        self._totals.add(step)
        self._step_seconds.observe(step.duration)
        self._tokens["prefill"] += step.prefill_tokens
        self._tokens["decode"] += step.decode_rows
        if step.failure is None:
            self._steps["complete"] += 1
            self._tokens["sampled"] += sum(row.artifact is not None for row in step.plan.rows)
        else:
            self._steps["failed"] += 1

    def queued(self, seconds: float) -> None:
        """See `RequestObserver.queued`."""
        self._queue.observe(seconds)

    def first_token(self, seconds: float) -> None:
        """See `RequestObserver.first_token`."""
        self._first.observe(seconds)

    def inter_token(self, seconds: float) -> None:
        """See `RequestObserver.inter_token`."""
        self._between.observe(seconds)

    def finished(self, outcome: str, code: str | None) -> None:
        """See `RequestObserver.finished`."""
        with self._lock:
            self._outcomes[outcome] += 1
            if code is not None:
                self._errors[code] += 1

    def failed(self, code: str, rank: int | None) -> None:
        """A group failed, loading or serving."""
        with self._lock:
            self._failures[code, "" if rank is None else str(rank)] += 1

    def lost(self, sink: str, count: int = 1) -> None:
        """So many steps or files of a trace could not be written."""
        with self._lock:
            self._lost[sink] += count

    def exposition(self, served: Served) -> bytes:
        """Everything, as of now."""
        registry = CollectorRegistry()
        registry.register(_Families(self, served))
        ProcessCollector(registry=registry)
        return generate_latest(registry)

    def families(self, served: Served) -> Iterator[Metric]:
        """As `exposition`, before it becomes text."""
        status = served.status()
        yield info("build", "Identity of the running sources", {"source": self._source})
        phases = {phase.value: float(phase is status.phase) for phase in Phase}
        yield gauge("phase", "1 for the phase that the service is in", ("phase",), phases)
        yield gauge("epoch", "Epoch in which the running group began", (), status.epoch)
        yield counter("restarts", "Restarts after a failure", (), status.restarts)
        age = max(0.0, served.clock() - status.progress_at)
        yield gauge("progress_age_seconds", "Since a step ended or the load moved", (), age)
        yield from self._engine_families()
        yield from self._request_families()
        yield from total_families(self._totals)
        yield from rank_families(status, served)

    def _engine_families(self) -> Iterator[Metric]:
        steps = {name: self._steps[name] for name in ("complete", "failed")}
        yield counter("steps", "Steps by how they ended", ("outcome",), steps)
        seconds = {(): self._step_seconds.filled()}
        yield histogram("step_seconds", "One step, from its plan to its result", (), seconds)
        tokens = {name: self._tokens[name] for name in ("prefill", "decode", "sampled")}
        yield counter("tokens", "Tokens computed (prefill, decode) and made", ("kind",), tokens)
        with self._lock:
            failures, lost = dict(self._failures), dict(self._lost)
        yield counter("failures", "Failed groups, by code and rank", ("code", "rank"), failures)
        lost = {"trace": 0, "chrome_trace": 0, "flight": 0} | lost
        yield counter("trace_lost", "Steps or files that could not be written", ("sink",), lost)

    def _request_families(self) -> Iterator[Metric]:
        with self._lock:
            outcomes, errors = dict(self._outcomes), dict(self._errors)
        yield counter("requests", "Requests by how they ended", ("outcome",), outcomes)
        yield counter("errors", "Errors told to clients, by code", ("code",), errors)
        for name, text, buckets in (
            ("queue_seconds", "From a request's arrival until it left the queue", self._queue),
            ("time_to_first_token_seconds", "From arrival to the first token", self._first),
            ("inter_token_seconds", "Between two tokens of a request", self._between),
        ):
            yield histogram(name, text, (), {(): buckets.filled()})


class _Families(Collector):
    """One look at everything."""

    def __init__(self, metrics: Metrics, served: Served) -> None:
        self._metrics = metrics
        self._served = served

    def collect(self) -> Iterator[Metric]:
        return self._metrics.families(self._served)

    def describe(self) -> list[Metric]:
        return []
