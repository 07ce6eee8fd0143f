"""A session of the block over ranks in memory: one group, its steps, and what was recorded.

The coordinator's group, the workers' core, the model's maths and the wire are the real ones; only
the pipe and the clock are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from coordinator.block_run import BlockOutcome, block_group, block_step, run_block
from coordinator.group import Group
from errors import MisuseError, PeerError
from manifest.run_manifest import RunManifest
from model.binding import open_program
from simulation.clock import VirtualClock
from simulation.delivery import Delivery, whole
from simulation.faults import Fault
from simulation.pipe import Rewrite, SimPipe, SimulatedWorker
from wire.connection import Connection
from wire.frame import Side
from wire.link import Link
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session

# A new cut for each stream, so that a seeded one starts afresh.
Cuts = Callable[[], Delivery]


def whole_cuts() -> Delivery:
    return whole


class BlockSimulation:
    """Ranks in memory for one run of a manifest.

    faults, rewrites: by rank. workers, links: in rank order. group: None until `open` succeeded.
    """

    def __init__(
        self,
        manifest: RunManifest,
        faults: Mapping[int, Fault] | None = None,
        cuts: Cuts = whole_cuts,
        rewrites: Mapping[int, Rewrite] | None = None,
    ) -> None:
        self.manifest = manifest
        self.clock = VirtualClock()
        self.recorder = Recorder(keep_bytes=True)
        self.group: Group | None = None
        self.links: tuple[Link, ...] = ()
        self.workers = [
            SimulatedWorker(
                rank, open_program, (faults or {}).get(rank), cuts(), (rewrites or {}).get(rank)
            )
            for rank in range(manifest.ranks)
        ]
        self._cuts = cuts

    def connect(self, recorder: Recorder) -> tuple[Link, ...]:
        """One greeted link per rank, in rank order (docs/spec/session.md S6). Raises PeerError."""
        wait_s = self.manifest.deadlines.handshake_ms / 1000
        links = []
        for rank, worker in enumerate(self.workers):
            connection = Connection(Side.COORDINATOR, Session(), rank, recorder)
            link = Link(connection, SimPipe(worker, self.clock, self._cuts()))
            links.append(link)
            self.links = tuple(links)
            hello = Hello(byte_order="little", dtype="<f4", rank=rank).to_bytes()
            link.receive(hello, 0, deadline=self.clock.now() + wait_s)
        return self.links

    def run(self) -> BlockOutcome:
        """The whole run, as the coordinator does it."""
        return run_block(self.manifest, self.connect, self.recorder)

    def open(self) -> None:
        """Greet the ranks, agree, send the weights. Raises PeerError; then all links are closed."""
        try:
            self.group = block_group(self.manifest, self.connect(self.recorder))
        except PeerError:
            self.close()
            raise

    def step(self) -> bytes:
        """One more step on the seeded operand; its output. Raises PeerError or PoisonedError."""
        if self.group is None:
            raise MisuseError("a step before the session was opened")
        return bytes(self.group.run_step(block_step(self.manifest))[0].payload)

    def close(self) -> None:
        """End all sessions."""
        for link in self.links:
            link.close()
