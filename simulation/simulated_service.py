"""A whole service in memory: engine, scheduler, session, frames, ranks; on a virtual clock.

Only processes, sockets and the maths are missing. Each rank may have a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from coordinator.engine import Engine, RankStatus
from coordinator.engine_inbox import Inbox
from coordinator.model_session import ModelSession
from coordinator.model_setup import ModelSetup
from coordinator.rank_watch import judge_undue
from coordinator.scheduler import Scheduler
from errors import PeerError
from manifest.run_manifest import RunManifest
from program.plan import StepPlan
from program.spec import ProgramSpec
from program.step_report import StepReport
from simulation.clock import VirtualClock
from simulation.delivery import Delivery, whole
from simulation.pipe import SimPipe, SimulatedWorker
from simulation.serving_faults import Strike
from simulation.stand_in import StandIn, StandInMaker
from wire.canonical import JsonValue
from wire.connection import Connection
from wire.frame import Side
from wire.link import Link
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session
from worker.executor import Executor, Opened, ProgramOpener

EngineMaker = Callable[..., Engine]


@dataclass(frozen=True)
class _Opened:
    spec: ProgramSpec
    digest: str
    executor: Executor


@dataclass(frozen=True)
class Simulation:
    """strikes: faults by rank. step_tokens: the scheduler's budget."""

    setup: ModelSetup
    manifest: RunManifest
    step_tokens: int
    waiting_max: int = 8
    heartbeat_s: float = 60.0
    strikes: Mapping[int, Strike] = field(default_factory=dict)
    make_rank: StandInMaker = StandIn
    make_engine: EngineMaker = Engine
    make_scheduler: Callable[..., Scheduler] = Scheduler
    delivery: Delivery = whole


class SimulatedService:
    """executors: the ranks' stand-ins. retired: the causes the engine ended the ranks for.

    during: called in the middle of every step.
    """

    def __init__(self, simulation: Simulation) -> None:
        self.clock = VirtualClock()
        self.recorder = Recorder(keep_bytes=False)
        self.executors: list[StandIn] = []
        self.retired: list[PeerError] = []
        self.during: Callable[[], None] = lambda: None
        self.limits = simulation.setup.capacity.limits
        self._workers = [
            SimulatedWorker(
                rank,
                self._opener(simulation),
                simulation.strikes.get(rank),
                simulation.delivery,
            )
            for rank in range(simulation.manifest.ranks)
        ]
        self._links = [self._greeted(rank) for rank in range(simulation.manifest.ranks)]
        self.session = ModelSession(
            simulation.setup,
            self._links,
            simulation.manifest.deadlines,
            first_epoch=simulation.manifest.epoch,
            sum_order=simulation.manifest.sum_order,
        )
        self.session.load()
        self.inbox = Inbox(simulation.waiting_max, lambda: None)
        scheduler = simulation.make_scheduler(
            self.limits, step_tokens=simulation.step_tokens, waiting_max=simulation.waiting_max
        )
        self.engine = simulation.make_engine(
            self,
            scheduler,
            self.inbox,
            heartbeat_s=simulation.heartbeat_s,
            clock=self.clock.now,
        )

    def step(self, plan: StepPlan, meanwhile: Callable[[], None]) -> StepReport:
        """See `engine.Ranks`; `during` is called while the step runs."""
        self.during()
        return self.session.step(plan, meanwhile)

    def wait(self, deadline: float) -> None:
        """What a rank has said or done by now is noticed at once; else time passes."""
        for worker, link in zip(self._workers, self._links, strict=True):
            spoke = worker.output.waiting or link.connection.has_news
            if not self.retired and (spoke or worker.ended):
                failure = judge_undue(link)
                self.session.group.stop(failure)
                raise failure
        self.clock.advance_to(deadline)

    def retire(self, cause: PeerError) -> PeerError:
        self.session.group.stop(cause)
        self.retired.append(cause)
        return cause

    def status(self) -> tuple[RankStatus, ...]:
        reports = self.session.last_reports
        return tuple(
            RankStatus(
                rank,
                None,
                load,
                reports[rank].state_digest if reports else None,
                reports[rank].hidden_digest if reports else None,
            )
            for rank, load in enumerate(self.session.reports)
        )

    def _opener(self, simulation: Simulation) -> ProgramOpener:
        setup = simulation.setup

        def open_program(
            program: str, parameters: Mapping[str, JsonValue], rank: int, world_size: int
        ) -> Opened:
            load = {"state_bytes": setup.capacity.state_bytes(rank)}
            executor = simulation.make_rank(setup.spec, self.limits, rank, load)
            self.executors.append(executor)
            return _Opened(setup.spec, setup.program_digest, executor)

        return open_program

    def _greeted(self, rank: int) -> Link:
        connection = Connection(Side.COORDINATOR, Session(), rank, self.recorder)
        link = Link(connection, SimPipe(self._workers[rank], self.clock))
        link.receive(Hello("little", "<f4", rank).to_bytes(), 0, deadline=self.clock.now() + 1)
        return link
