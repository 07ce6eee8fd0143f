"""The in-memory pipe: a real worker, virtual deadlines, and any cut of the stream."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from coordinator.block_run import BlockOutcome, run_block
from errors import DeadlineError
from manifest.run_manifest import from_flags
from model.binding import open_program
from simulation.clock import VirtualClock
from simulation.delivery import Delivery, byte_by_byte, seeded_cuts, whole
from simulation.faults import Fault, FaultKind
from simulation.pipe import SimPipe, SimulatedWorker
from wire.connection import Connection
from wire.frame import Kind, Side, encode
from wire.frame_reader import FrameReader
from wire.link import Link
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session

PHASE_MS = 7_000
CODES = {
    FaultKind.RANK_EXIT: "protocol.closed",
    FaultKind.TRUNCATED_FRAME: "protocol.truncated",
    FaultKind.CHECKSUM_CORRUPTION: "protocol.checksum",
    FaultKind.STALE_EPOCH: "contract.epoch",
    FaultKind.DUPLICATE_SEQUENCE: "contract.sequence",
    FaultKind.METADATA_MISMATCH: "contract.metadata",
    FaultKind.DELAY: "deadline.receive",
    FaultKind.CANCELLATION_RACE: "deadline.receive",
}


def worker(
    rank: int = 0, fault: Fault | None = None, delivery: Delivery = whole
) -> SimulatedWorker:
    return SimulatedWorker(rank, open_program, fault, delivery)


class Simulated:
    """Two ranks, the second of which may have a fault."""

    def __init__(self, fault: Fault | None, cut: Callable[[], Delivery]) -> None:
        self.clock = VirtualClock()
        self.workers = [worker(rank, fault if rank == 1 else None, cut()) for rank in range(2)]
        self.pipes = [SimPipe(one, self.clock, cut()) for one in self.workers]
        self.recorder = Recorder(keep_bytes=True)

    def run(self) -> BlockOutcome:
        flags = {"ranks": "2", "batch": "1", "sequence": "2", "deadlines.phase_ms": str(PHASE_MS)}
        return run_block(from_flags(flags), self._connect, self.recorder)

    def _connect(self, recorder: Recorder) -> tuple[Link, ...]:
        links = []
        for rank, pipe in enumerate(self.pipes):
            link = Link(Connection(Side.COORDINATOR, Session(), rank, recorder), pipe)
            link.receive(Hello("little", "<f4", rank).to_bytes(), 0, deadline=1.0)
            links.append(link)
        return tuple(links)


CUTS: dict[str, Callable[[], Delivery]] = {
    "whole": lambda: whole,
    "bytes": lambda: byte_by_byte,
    "seeded": lambda: seeded_cuts(3),
}


@pytest.fixture(scope="module")
def reference() -> tuple[bytes | None, bytes, bytes]:
    simulated = Simulated(None, CUTS["whole"])
    outcome = simulated.run()
    assert outcome.failure is None
    return outcome.output, simulated.recorder.ledger(), simulated.recorder.tape()


@pytest.mark.parametrize("cut", CUTS)
def test_the_cut_changes_nothing(cut: str, reference: tuple[bytes | None, bytes, bytes]) -> None:
    simulated = Simulated(None, CUTS[cut])
    outcome = simulated.run()
    found = (outcome.output, simulated.recorder.ledger(), simulated.recorder.tape())
    assert found == reference
    assert simulated.clock.now() == 0.0
    assert all(pipe.closed for pipe in simulated.pipes)


@pytest.mark.parametrize("cut", ["whole", "seeded"])
@pytest.mark.parametrize("phase", ["attention", "mlp", "result"])
@pytest.mark.parametrize("kind", FaultKind)
def test_faults(kind: FaultKind, phase: str, cut: str) -> None:
    """The same codes as over real processes; a timeout takes the deadline, and no time."""
    began = time.monotonic()
    simulated = Simulated(Fault(kind, phase, 2), CUTS[cut])
    outcome = simulated.run()
    assert outcome.output is None
    assert outcome.failure is not None
    failure = outcome.failure
    assert (failure.code, failure.rank, failure.phase) == (CODES[kind], 1, phase)
    waited = PHASE_MS / 1000 if CODES[kind].startswith("deadline") else 0.0
    assert simulated.clock.now() == waited
    assert time.monotonic() - began < PHASE_MS / 1000
    # The healthy rank sees no more of it than the end of its connection.
    healthy = simulated.workers[0].failure
    assert (healthy.code if healthy else None) == (None if phase == "result" else "protocol.closed")


def test_silence_moves_the_clock_to_the_deadline() -> None:
    clock = VirtualClock()
    pipe = SimPipe(worker(), clock)
    reader = FrameReader()
    reader.receive_data(pipe.receive(1 << 20, 1.0))
    hello = reader.next_frame()
    assert hello is not None
    assert hello.kind is Kind.HELLO
    for deadline in (5.0, 9.0):
        with pytest.raises(DeadlineError) as late:
            pipe.receive(1 << 20, deadline)
        assert (late.value.code, pipe.clock()) == ("deadline.receive", deadline)


def test_a_worker_that_refuses_a_frame_has_ended() -> None:
    """As a process would: its stream ends, and its reason is its own."""
    one = worker()
    pipe = SimPipe(one, VirtualClock())
    pipe.receive(1 << 20, 1.0)
    _, buffers = encode(Kind.COMMAND, epoch=1, sequence=0, metadata=b"{}", payload=b"")
    pipe.send(buffers, 1.0)
    assert pipe.receive(1 << 20, 2.0) == b""
    assert pipe.receive(1 << 20, 3.0) == b""
    assert one.ended
    assert one.failure is not None
    assert one.failure.code == "contract.kind"
    assert pipe.clock() == 0.0
    pipe.send(buffers, 4.0)
    assert not one.can_run()


def test_a_pipe_has_no_descriptor_and_gives_no_more_than_asked_for() -> None:
    pipe = SimPipe(worker(), VirtualClock())
    assert pipe.fileno() == -1
    first = pipe.receive(10, 1.0)
    assert len(first) == 10
    assert first + pipe.receive(1 << 20, 1.0) == bytes(hello_of(0))


def hello_of(rank: int) -> bytes:
    metadata = Hello("little", "<f4", rank).to_bytes()
    _, buffers = encode(Kind.HELLO, epoch=0, sequence=0, metadata=metadata, payload=b"")
    return b"".join(buffers)
