"""A served model whose engine is turned by hand, over real worker processes; all is noted.

The benchmark decides between two steps what clients do, so its traffic is the same in every
configuration, while scheduler, engine, frames and ranks are those of a service.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from coordinator.engine import Engine
from coordinator.engine_inbox import Inbox
from coordinator.model_run import ModelBindings
from coordinator.model_setup import ModelSetup, set_up
from coordinator.request import Finished, Outcome, Token, Update
from coordinator.scheduler import Scheduler
from coordinator.service_run import ServedModel, served_model
from coordinator.submission import parse_submission
from errors import TPError
from manifest.run_manifest import RunManifest
from program.plan import StepPlan
from program.step_report import StepReport
from wire.recorder import Recorder

# An idle group is not looked after: every request of a benchmark runs to its end at once.
_HEARTBEAT_S = 3600.0


@dataclass(frozen=True)
class StepRecord:
    """A step that every rank completed. rank_digests: of the plan, as each rank reported it.

    started, ended: seconds of `time.perf_counter`. processor_s: what coordinator and ranks used,
    0 where nobody asked, because looking takes time.
    """

    plan: StepPlan
    rank_digests: tuple[str, ...]
    started: float
    ended: float
    processor_s: float

    @property
    def elapsed_s(self) -> float:
        return self.ended - self.started


class Stream:
    """One client: what came, and when (seconds of `time.perf_counter`)."""

    def __init__(self) -> None:
        self.request_id = -1
        self.submitted = time.perf_counter()
        self.tokens: list[tuple[float, Token]] = []
        self.end: Finished | None = None

    def put(self, update: Update) -> None:
        if isinstance(update, Token):
            self.tokens.append((time.perf_counter(), update))
        else:
            self.end = update

    def flush(self) -> None:
        """Nobody waits."""

    @property
    def times(self) -> list[float]:
        """When each token came."""
        return [at for at, _ in self.tokens]


class _NotingRanks:
    """The service's ranks; complete steps are noted."""

    def __init__(
        self, model: ServedModel, steps: list[StepRecord], *, with_processor: bool
    ) -> None:
        self._model = model
        self._steps = steps
        self._with_processor = with_processor
        self._pids = [status.pid for status in model.ranks.status() if status.pid is not None]
        self.wait = model.ranks.wait
        self.retire = model.ranks.retire
        self.status = model.ranks.status

    def step(self, plan: StepPlan, meanwhile: Callable[[], None]) -> StepReport:
        busy = self._processor_s()
        started = time.perf_counter()
        report = self._model.ranks.step(plan, meanwhile)
        ended = time.perf_counter()
        used = self._processor_s() - busy
        digests = tuple(rank.plan_digest for rank in self._model.session.last_reports)
        self._steps.append(StepRecord(plan, digests, started, ended, used))
        return report

    def _processor_s(self) -> float:
        if not self._with_processor:
            return 0.0
        return time.process_time() + sum(map(processor_s, self._pids))


class TurnedEngine:
    """steps: all complete ones, in order. model, setup: for what they report."""

    def __init__(
        self, setup: ModelSetup, model: ServedModel, waiting_max: int, *, with_processor: bool
    ) -> None:
        self.setup = setup
        self.model = model
        self.steps: list[StepRecord] = []
        limits = setup.capacity.limits
        self._inbox = Inbox(waiting_max, model.wake.set)
        self._engine = Engine(
            _NotingRanks(model, self.steps, with_processor=with_processor),
            Scheduler(limits, step_tokens=limits.tokens_per_step, waiting_max=waiting_max),
            self._inbox,
            heartbeat_s=_HEARTBEAT_S,
            clock=time.monotonic,
        )

    def submit(self, prompt: Sequence[int], max_tokens: int) -> Stream:
        """A greedy request of exactly `max_tokens` tokens."""
        given = {"prompt_token_ids": list(prompt), "max_tokens": max_tokens}
        submission = parse_submission(given, self.setup.capacity.limits)
        stream = Stream()
        stream.request_id = self._inbox.submit(submission, stream)
        return stream

    def turn(self) -> bool:
        """One step, if there is one to run. Raises the failure of a rank."""
        ran = self._engine.turn()
        if self._engine.failure is not None:
            raise self._engine.failure.cause
        return ran

    def finish(self, streams: Sequence[Stream]) -> None:
        """Until nothing is left to do. Raises TPError when a request ended in another way."""
        while self.turn():
            pass
        for stream in streams:
            if stream.end is None or stream.end.outcome is not Outcome.LENGTH:
                raise TPError("bench.failed", f"request {stream.request_id} ended: {stream.end}")


@contextmanager
def turned_engine(
    manifest: RunManifest,
    bindings: ModelBindings,
    positions_max: int,
    waiting_max: int,
    *,
    with_processor: bool = False,
) -> Iterator[TurnedEngine]:
    """A loaded model. positions_max: prompt and answer of the longest request, in tokens.

    with_processor: each step's processor time is noted.
    """
    setup = set_up(manifest, bindings.machine, positions_max)
    with served_model(setup, manifest, bindings, Recorder(keep_bytes=False)) as model:
        yield TurnedEngine(setup, model, waiting_max, with_processor=with_processor)


def processor_s(pid: int) -> float:
    """Seconds of processor time of all threads of a process that runs; 0 for one that is gone."""
    used = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            used += int(task.read_text(encoding="ascii").split()[0])
        except OSError:
            continue
    return used / 1e9


def peak_rss_bytes(pid: int) -> int:
    """Largest resident size so far of a process that runs."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise TPError("bench.failed", f"process {pid} tells no peak of its resident size")
