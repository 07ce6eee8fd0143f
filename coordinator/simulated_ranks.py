"""Simulated ranks with toy programs, and a group over them: for tests of the group.

One frame of each rank may be changed on its way, or be the last thing that is heard of the rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from coordinator.group import Agreement, Group
from errors import MisuseError
from program.digest import program_digest
from program.spec import Dtype, ProgramSpec
from simulation.clock import VirtualClock
from simulation.delivery import whole
from simulation.pipe import SimPipe, SimulatedWorker
from wire.canonical import JsonValue, decode_canonical, encode_canonical
from wire.connection import Connection
from wire.frame import Buffer, Frame, Side, encode
from wire.frame_reader import FrameReader
from wire.ledger import Entry
from wire.link import Link, Pipe
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session
from worker.toy_program import ToyPrograms, elements


class Loss(Enum):
    """In place of a frame and of everything after it."""

    SILENCE = "nothing comes any more"
    END = "the stream ends"


# What comes in place of a frame.
Tamper = Callable[[Frame], bytes] | Loss


@dataclass(frozen=True)
class Milliseconds:
    """Each deadline is of its own length, so that the clock shows which of them passed."""

    load_ms: int = 20_000
    phase_ms: int = 3_000
    send_ms: int = 500


class TamperedPipe(SimPipe):
    """A simulated rank whose frames may be changed. tampers: by index of the frame, HELLO is 0."""

    def __init__(
        self, worker: SimulatedWorker, clock: VirtualClock, tampers: Mapping[int, Tamper]
    ) -> None:
        super().__init__(worker, clock)
        self._reader = FrameReader()
        self._tampers = tampers
        self._index = 0
        self._ready = b""
        self._loss: Loss | None = None

    def receive(self, limit: int, deadline: float) -> bytes:
        while not self._ready:
            if self._loss is Loss.END:
                return b""
            data = super().receive(limit, deadline)
            if not data:
                return b""
            if self._loss is None:
                self._reader.receive_data(data)
                self._take_frames()
        piece, self._ready = self._ready[:limit], self._ready[limit:]
        return piece

    def _take_frames(self) -> None:
        while self._loss is None and (frame := self._reader.next_frame()) is not None:
            tamper = self._tampers.get(self._index)
            self._index += 1
            if isinstance(tamper, Loss):
                self._loss = tamper
            elif tamper is not None:
                self._ready += tamper(frame)
            else:
                self._ready += b"".join((frame.header.to_bytes(), frame.metadata, frame.payload))


class SimulatedRanks:
    """tampers: by rank and index of the rank's frame."""

    def __init__(
        self,
        spec: ProgramSpec,
        order: str = "rank",
        tampers: Mapping[tuple[int, int], Tamper] | None = None,
    ) -> None:
        self.clock = VirtualClock()
        self.programs = ToyPrograms()
        self.recorder = Recorder(keep_bytes=True)
        self.pipes: list[SimPipe] = []
        links = []
        for rank in range(spec.world_size):
            own = {index: one for (at, index), one in (tampers or {}).items() if at == rank}
            worker = SimulatedWorker(rank, self.programs, None, whole)
            self.pipes.append(TamperedPipe(worker, self.clock, own))
            links.append(self._greeted(rank, self.pipes[-1]))
        agreement = Agreement(spec, program_digest(spec), {}, 5, order)
        self.group = Group(agreement, links, Milliseconds())

    def ready(self) -> Group:
        """Open, and with all weights."""
        self.group.open()
        if self.group.spec.planned:
            self.group.load_local(lambda rank: {"path": f"p{rank}"})
        else:
            self.group.load_weights(self.weight)
        return self.group

    def weight(self, name: str, rank: int) -> bytes:
        """Each rank's slice is of a value of its own."""
        spec = self.group.spec
        for weight in spec.weights:
            if weight.name == name:
                shape = weight.local_shape(rank, spec.world_size)
                return elements(shape, float(rank), Dtype.FLOAT32)
        raise MisuseError(f"no weight {name!r}")

    @property
    def last(self) -> Entry:
        """The ledger's last entry."""
        return self.recorder.entries()[-1]

    def journal(self, rank: int) -> list[tuple[object, ...]]:
        """What the rank's executor was asked to do."""
        return self.programs.opened[rank].journal

    def _greeted(self, rank: int, pipe: Pipe) -> Link:
        link = Link(Connection(Side.COORDINATOR, Session(), rank, self.recorder), pipe)
        link.receive(Hello("little", "<f4", rank).to_bytes(), 0, deadline=1.0)
        return link


def changed(payload: Buffer | None = None, **metadata: JsonValue) -> Callable[[Frame], bytes]:
    """A sound frame that says something else."""

    def tamper(frame: Frame) -> bytes:
        said = encode_canonical(decode_canonical(frame.metadata) | metadata)
        _, buffers = encode(
            frame.kind,
            flags=frame.header.flags,
            epoch=frame.header.epoch,
            sequence=frame.header.sequence,
            metadata=said,
            payload=frame.payload if payload is None else payload,
        )
        return b"".join(buffers)

    return tamper
