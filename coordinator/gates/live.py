"""A service without its socket, for gates: real worker processes, and an engine turned by hand.

A test decides between any two steps what clients do, so what happens when is exact, and yet every
byte passes real processes. Memory that belongs to nobody is NaN on every rank.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import worker.main
from coordinator.engine import Engine
from coordinator.engine_inbox import Inbox
from coordinator.fake_ranks import ListOutbox
from coordinator.model_run import ModelBindings
from coordinator.model_setup import Machine, ModelSetup, set_up
from coordinator.processes import ExecLauncher
from coordinator.request import Finished, RequestEvent, Token
from coordinator.scheduler import Scheduler
from coordinator.service_run import ServedModel, served_model
from coordinator.submission import parse_submission
from manifest.run_manifest import RunManifest, from_flags
from program.capacity import RankBudget
from program.plan import StepPlan
from program.slots import SlotTable
from program.step_report import StepReport
from testdata.golden.seeded_checkpoint import write_checkpoint
from testdata.golden.shapes import BASE
from wire.recorder import Recorder

# Far more than a rank needs for a phase of these models on a busy machine.
PHASE_MS: Final = 20_000
# A test that runs away fails instead of hanging.
TURNS_MAX: Final = 20_000
MACHINE: Final = Machine(memory_bytes=1 << 30, processors=frozenset({0, 1}))
_MEMORY: Final = "model.rank_memory_bytes"
DEFAULTS: Final[Mapping[str, str]] = {
    "model.max_batch": "3",
    "model.max_step_tokens": "8",
    "model.page_tokens": "4",
    "deadlines.phase_ms": str(PHASE_MS),
}


# What a process of a test runs with. It imports from where the test does.
ENVIRONMENT: Final = {
    "PYTHONPATH": os.pathsep.join(sys.path),
    "PYTHONSAFEPATH": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
# One layer of each kind: all that state can be, in half the steps' time. Goldens have tests of
# their own (golden_test.py).
GATE_SHAPE: Final = replace(BASE, pattern="LF")


def gate_model(folder: Path) -> Path:
    """A checkpoint below `folder` whose weights follow from a seed."""
    path = folder / "model"
    write_checkpoint(path, GATE_SHAPE, 1)
    return path


@dataclass(frozen=True)
class Worker:
    """Which program a rank's process runs, and with what further arguments."""

    module: str = worker.main.__name__
    arguments: tuple[str, ...] = ()

    def launcher(self, _: RunManifest) -> ExecLauncher:
        return ExecLauncher((sys.executable, "-m", self.module), ENVIRONMENT, self.arguments)


REAL_WORKER: Final = Worker()


@dataclass
class Request:
    """One request, and what its client has seen of it."""

    request_id: int
    outbox: ListOutbox = field(default_factory=ListOutbox)

    @property
    def tokens(self) -> list[Token]:
        return [update for update in self.outbox.updates if isinstance(update, Token)]

    @property
    def token_ids(self) -> list[int]:
        return self.outbox.token_ids

    @property
    def end(self) -> Finished:
        """The only terminal event; fails when there is none, or more than one."""
        (end,) = self.outbox.ends
        if self.outbox.updates[-1] is not end:
            raise AssertionError("an update followed the end")
        return end


@dataclass(frozen=True)
class Step:
    """A complete step: its plan, and every rank's report."""

    plan: StepPlan
    reports: tuple[StepReport, ...]


class _NotingRanks:
    """The service's ranks; complete steps are noted."""

    def __init__(self, model: ServedModel, steps: list[Step]) -> None:
        self._model = model
        self._steps = steps
        self.wait = model.ranks.wait
        self.retire = model.ranks.retire
        self.status = model.ranks.status

    def step(self, plan: StepPlan, meanwhile: Callable[[], None]) -> StepReport:
        report = self._model.ranks.step(plan, meanwhile)
        self._steps.append(Step(plan, self._model.session.last_reports))
        return report


class Live:
    """steps: all complete ones, in order."""

    def __init__(self, setup: ModelSetup, model: ServedModel, options: LiveOptions) -> None:
        self.setup = setup
        self.model = model
        self.steps: list[Step] = []
        self.inbox = Inbox(options.waiting_max, model.wake.set)
        scheduler = Scheduler(
            setup.capacity.limits,
            step_tokens=options.step_tokens or setup.capacity.limits.tokens_per_step,
            waiting_max=options.waiting_max,
        )
        ranks = _NotingRanks(model, self.steps)
        self.engine = Engine(
            ranks, scheduler, self.inbox, heartbeat_s=options.heartbeat_s, clock=time.monotonic
        )

    def submit(self, prompt: Sequence[int], max_tokens: int = 4, **parameters: object) -> Request:
        given = {"prompt_token_ids": list(prompt), "max_tokens": max_tokens, **parameters}
        submission = parse_submission(given, self.setup.capacity.limits)
        request = Request(-1)
        request.request_id = self.inbox.submit(submission, request.outbox)
        return request

    def end(self, request: Request, event: RequestEvent) -> None:
        self.inbox.end(request.request_id, event)

    def turns(self, count: int) -> None:
        for _ in range(count):
            self.engine.turn()

    def finish(self) -> None:
        """Until nothing is left to do."""
        for _ in range(TURNS_MAX):
            if not self.engine.turn():
                return
        raise AssertionError("requests do not come to an end")

    def alone(self, prompt: Sequence[int], max_tokens: int = 4, **parameters: object) -> Request:
        """One request on the idle service, to its end."""
        request = self.submit(prompt, max_tokens, **parameters)
        self.finish()
        return request

    @property
    def table(self) -> SlotTable:
        return self.engine.snapshot.scheduler.table

    def demand_idle(self) -> None:
        """No slot, no page, no request is left, and every rank says so."""
        snapshot = self.engine.snapshot
        limits = self.setup.capacity.limits
        if snapshot.failure is not None:
            raise AssertionError(f"failed: {snapshot.failure.cause.diagnostics()}")
        left = (self.table.residents, snapshot.scheduler.states, snapshot.scheduler.in_flight)
        if left != ((), (), None) or self.table.free_pages != limits.pages:
            raise AssertionError(f"left at idle: {left}, {self.table.free_pages} pages free")
        empty = SlotTable.empty(limits).digest()
        if self.steps and {report.state_digest for report in self.steps[-1].reports} != {empty}:
            raise AssertionError("a rank holds something at idle")


@dataclass(frozen=True)
class LiveOptions:
    """pages: the memory of each rank is what exactly so many need.

    step_tokens: the scheduler's budget, None for as much as the ranks take.
    """

    program: str = "qwen35/sharded"
    ranks: int = 2
    flags: Mapping[str, str] = field(default_factory=dict)
    pages: int = 36
    worker: Worker = REAL_WORKER
    poison: bool = True
    waiting_max: int = 64
    step_tokens: int | None = None
    heartbeat_s: float = 600.0


def manifest_of(folder: Path, options: LiveOptions) -> RunManifest:
    """Few pages, so that they are reused; and as much memory as these need."""
    flags = {
        "program": options.program,
        "ranks": str(options.ranks),
        "model.checkpoint": str(folder),
    }
    flags = {**DEFAULTS, **flags, **options.flags}
    if _MEMORY not in flags:
        ample = set_up(from_flags(flags), lambda: MACHINE).capacity
        memory = [exact_memory(budget, ample.limits.slots, options.pages) for budget in ample.ranks]
        flags[_MEMORY] = ",".join(map(str, memory))
    return from_flags(flags)


def exact_memory(budget: RankBudget, slots: int, pages: int) -> int:
    """Bytes of one rank that hold so many slots and pages, and nothing more."""
    fixed = budget.weight_bytes + budget.scratch_bytes + budget.reserve_bytes
    return fixed + slots * budget.slot_bytes + pages * budget.page_bytes


@contextmanager
def live(
    folder: Path, options: LiveOptions | None = None, recorder: Recorder | None = None
) -> Iterator[Live]:
    """A loaded service on the checkpoint in `folder`. On leaving, every process is gone."""
    options = options or LiveOptions()
    manifest = manifest_of(folder, options)
    setup = set_up(manifest, lambda: MACHINE)
    loads = tuple(replace(load, poison_state=options.poison) for load in setup.loads)
    setup = replace(setup, loads=loads)
    bindings = ModelBindings(options.worker.launcher, lambda: MACHINE)
    kept = recorder or Recorder(keep_bytes=False)
    with served_model(setup, manifest, bindings, kept) as model:
        yield Live(setup, model, options)
