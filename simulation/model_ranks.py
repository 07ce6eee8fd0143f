"""A model over simulated ranks: real executors behind real sessions, in one process.

For tests that look into the ranks: what a rank keeps can be read, copied and made to differ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, cast

from coordinator.group import Agreement, Group, StepInput
from errors import MisuseError
from model.binding import open_program
from model.bound_qwen35 import BoundQwen35, OpenedQwen35
from model.ops import Array
from program.digest import program_digest
from program.plan import PlanLimits, StepPlan
from program.plan_codec import encode_plan
from program.qwen35 import Variant, qwen35_program
from program.qwen35_config import read_config
from program.qwen35_load import LoadOrder, ModelSource
from program.qwen35_memory import WeightsDtype
from program.slots import SlotTable
from program.spec import Dtype, ProgramSpec
from simulation.clock import VirtualClock
from simulation.delivery import Delivery, whole
from simulation.faults import Fault
from simulation.pipe import SimPipe, SimulatedWorker
from wire.canonical import JsonObject
from wire.connection import Connection
from wire.frame import Side
from wire.link import Link
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session

WORLD_SIZE: Final = 2
SLOTS, PAGES, PAGE_TOKENS, STEP_TOKENS = 3, 8, 4, 16

# Puts something between a rank's core and its executor.
Wrap = Callable[[int, BoundQwen35], BoundQwen35]


class Kept(NamedTuple):
    """All that a rank carries from step to step."""

    table: SlotTable
    arenas: tuple[bytes, ...]


@dataclass(frozen=True)
class Deadlines:
    """Virtual milliseconds."""

    load_ms: int = 1000
    phase_ms: int = 1000
    send_ms: int = 1000


@dataclass
class ModelRanks:
    """workers, links, executors: by rank. An executor is there once its ACK was read."""

    group: Group
    spec: ProgramSpec
    limits: PlanLimits
    recorder: Recorder
    workers: list[SimulatedWorker]
    links: tuple[Link, ...]
    executors: dict[int, BoundQwen35] = field(default_factory=dict)

    def step_input(self, plan: StepPlan) -> StepInput:
        shape = (plan.operand_rows, self.spec.hidden_size)
        return StepInput(shape=shape, plan=as_json(encode_plan(plan)))

    def kept(self) -> list[Kept]:
        """A copy of every rank's table and state."""
        return [self._kept(rank) for rank in range(WORLD_SIZE)]

    def _kept(self, rank: int) -> Kept:
        executor = self.executors[rank].executor
        state = executor.state
        arenas: tuple[Array, ...] = (state.recurrent, state.conv, state.keys, state.values)
        return Kept(executor.table, tuple(arena.tobytes() for arena in arenas))


def as_json(value: Mapping[str, object]) -> JsonObject:
    """The codecs of program/ give JSON values, but can't name the type."""
    return cast(JsonObject, value)


def open_model(
    folder: Path,
    variant: Variant = Variant.SHARDED,
    faults: Mapping[int, Fault] | None = None,
    *,
    wrap: Wrap = lambda _, executor: executor,
    delivery: Delivery = whole,
) -> ModelRanks:
    """Two ranks of a checkpoint, loaded. faults: by rank."""
    config = read_config(folder)
    spec = qwen35_program(config, variant, WORLD_SIZE)
    source = ModelSource(str(folder), Dtype.FLOAT32)
    limits = PlanLimits(
        vocab_size=config.vocab_size,
        context_tokens=config.max_position_embeddings,
        slots=SLOTS,
        pages=PAGES,
        page_tokens=PAGE_TOKENS,
        tokens_per_step=STEP_TOKENS,
    )
    executors: dict[int, BoundQwen35] = {}

    def opener(
        program: str, parameters: Mapping[str, object], rank: int, world_size: int
    ) -> OpenedQwen35:
        opened = open_program(program, parameters, rank, world_size)
        if not isinstance(opened, OpenedQwen35):
            raise MisuseError(f"{program} is no model program")
        executors[rank] = wrap(rank, opened.executor)
        return OpenedQwen35(opened.spec, opened.digest, executors[rank])

    clock, recorder = VirtualClock(), Recorder(keep_bytes=True)
    workers = [
        SimulatedWorker(rank, opener, (faults or {}).get(rank), delivery)
        for rank in range(WORLD_SIZE)
    ]
    links = tuple(_greeted(worker, rank, clock, recorder) for rank, worker in enumerate(workers))
    agreement = Agreement(spec, program_digest(spec), as_json(source.to_json()), 1, "rank")
    group = Group(agreement, links, Deadlines())
    group.open()
    order = LoadOrder(limits, WeightsDtype.AUTO, poison_state=True)
    group.load_local(lambda _: as_json(order.to_json()))
    return ModelRanks(group, spec, limits, recorder, workers, links, executors)


def _greeted(worker: SimulatedWorker, rank: int, clock: VirtualClock, recorder: Recorder) -> Link:
    connection = Connection(Side.COORDINATOR, Session(), rank, recorder)
    link = Link(connection, SimPipe(worker, clock))
    link.receive(Hello("little", "<f4", rank).to_bytes(), 0, deadline=clock.now() + 1)
    return link
