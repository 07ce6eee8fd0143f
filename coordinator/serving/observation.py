"""Everything that observes a service, put together: what `serve` makes, feeds and closes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator.engine import Failure
from coordinator.serving.chrome_trace import ChromeTrace
from coordinator.serving.flight import STEPS, Crash, FlightRecorder
from coordinator.serving.metrics import Metrics
from coordinator.serving.served import Phase, Served
from coordinator.serving.steps import StepLog
from coordinator.serving.trace_jsonl import StepTrace
from coordinator.serving.trace_writer import TraceFile, TraceWriter
from coordinator.step_timing import Observers, StepObserver
from errors import PeerError
from wire.recorder import RECENT_BYTES, Recorder

_FLIGHT: Final = "flight"


@dataclass(frozen=True)
class ObserveOptions:
    """trace, chrome_trace: files to write, or None. dump_dir: where a failure is dumped, if at all.

    recent_bytes: frames that are kept to be looked at.
    """

    trace: Path | None = None
    chrome_trace: Path | None = None
    dump_dir: Path | None = None
    recent_bytes: int = RECENT_BYTES


@dataclass(frozen=True)
class ObservedEpoch:
    """Of one group: give both to `served_model`."""

    recorder: Recorder
    observer: StepObserver


class Observation:
    """log, metrics: for `observe_routes`; metrics also implements `RequestObserver`.

    source: identity of the running sources. clock: `Served.clock`. tell: gets a sentence for the
    operator. Raises ConfigError when a file or folder can't be used.
    """

    def __init__(
        self,
        options: ObserveOptions,
        *,
        source: str,
        clock: Callable[[], float],
        tell: Callable[[str], None] = lambda sentence: None,
    ) -> None:
        self.log = StepLog(clock)
        self.metrics = Metrics(source)
        self._source = source
        self._tell = tell
        self._recent_bytes = options.recent_bytes
        dump = options.dump_dir
        self._flight = None if dump is None else FlightRecorder(dump)
        files: list[TraceFile] = []
        if options.trace is not None:
            files.append(StepTrace(options.trace, self.log.started_at))
        if options.chrome_trace is not None:
            files.append(ChromeTrace(options.chrome_trace, self.log.started_at))
        self._writer = TraceWriter(files, self.metrics.lost)
        self._observers = Observers([self.log, self.metrics, self._writer])

    @contextmanager
    def epoch(self, epoch: int, served: Served) -> Iterator[ObservedEpoch]:
        """Around one group's life, by the engine's thread; a group that failed is dumped after it.

        served: asked for the failure and the state, once the group has failed.
        """
        recorder = Recorder(keep_bytes=False, recent_bytes=self._recent_bytes)
        self._writer.epoch_began(epoch)
        try:
            yield ObservedEpoch(recorder, self._observers)
        except PeerError as cause:
            # A load that the service itself ends, because it stops, is no failure.
            if served.status().phase is not Phase.STOPPING:
                self._failed(epoch, Failure(cause, None), served, recorder)
            raise
        status = served.status()
        if status.epoch == epoch and status.failure is not None:
            self._failed(epoch, status.failure, served, recorder)

    def close(self) -> None:
        """End the trace files; may be called again."""
        if not self._writer.close():
            self._tell("the traces could not be written to their end in time")

    def _failed(self, epoch: int, failure: Failure, served: Served, recorder: Recorder) -> None:
        self.metrics.failed(failure.cause.code, failure.cause.rank)
        if self._flight is None:
            return
        status = served.status()
        snapshot = status.snapshot
        loaded = snapshot is not None and snapshot.failure is failure
        crash = Crash(
            epoch=epoch,
            world_size=len(status.ranks),
            program=served.program,
            source=self._source,
            failure=failure,
            snapshot=snapshot if loaded else None,
            steps=self.log.recent(STEPS) if loaded else (),
            origin=self.log.started_at,
        )
        path = self._flight.dump(crash, recorder)
        if path is None:
            self.metrics.lost(_FLIGHT)
            self._tell("the flight recorder could not be written whole")
        else:
            self._tell(f"the flight recorder is in {path}")
