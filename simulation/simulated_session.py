"""A model's ranks in memory: the real worker and the real maths behind in-memory pipes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from coordinator.model_session import ModelSession
from coordinator.model_setup import ModelSetup
from manifest.run_manifest import RunManifest
from model.binding import open_program
from simulation.clock import VirtualClock
from simulation.delivery import whole
from simulation.pipe import SimPipe, SimulatedWorker
from wire.canonical import JsonValue
from wire.connection import Connection
from wire.frame import Side
from wire.link import Link
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session
from worker.executor import Opened

# Changes a rank's executor before it is used; Any, because its methods are replaced.
Spoil = Callable[[Any], None]


def simulated_session(
    setup: ModelSetup, manifest: RunManifest, spoiled: Mapping[int, Spoil] | None = None
) -> tuple[ModelSession, Recorder]:
    """A greeted, unloaded session. spoiled: by rank."""
    clock, recorder = VirtualClock(), Recorder()

    def open_rank(
        program: str, parameters: Mapping[str, JsonValue], rank: int, world_size: int
    ) -> Opened:
        opened: Any = open_program(program, parameters, rank, world_size)
        if spoiled is not None and rank in spoiled:
            spoiled[rank](opened.executor)
        result: Opened = opened
        return result

    links = []
    for rank in range(manifest.ranks):
        pipe = SimPipe(SimulatedWorker(rank, open_rank, None, whole), clock)
        link = Link(Connection(Side.COORDINATOR, Session(), rank, recorder), pipe)
        link.receive(Hello("little", "<f4", rank).to_bytes(), 0, deadline=clock.now() + 1)
        links.append(link)
    session = ModelSession(
        setup,
        links,
        manifest.deadlines,
        first_epoch=manifest.epoch,
        sum_order=manifest.sum_order,
    )
    return session, recorder
