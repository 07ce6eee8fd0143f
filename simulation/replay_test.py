"""Replays with the real worker and the real arithmetic: clean runs, and every planted fault."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from coordinator.block_run import run_block
from coordinator.recording import Recording
from coordinator.replay_coordinator import replay_coordinator
from coordinator.replay_worker import replay_worker
from manifest.fields import FAULT_KINDS, FAULT_PHASES
from manifest.run_manifest import from_flags
from model.binding import open_program
from simulation.clock import VirtualClock
from simulation.delivery import byte_by_byte, whole
from simulation.faults import Fault, FaultKind
from simulation.pipe import SimPipe, SimulatedWorker
from wire.connection import Connection
from wire.frame import Side
from wire.ledger import read_ledger
from wire.link import Link, Pipe
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session
from wire.tape import read_tape

RANKS = 4
FAULTY_RANK = 2
FRAMES = 19


def simulated(flags: dict[str, str], fault: Fault | None = None) -> Recording:
    manifest = from_flags(flags)
    recorder = Recorder(keep_bytes=True)
    clock = VirtualClock()

    def connect(_: Recorder) -> tuple[Link, ...]:
        links = []
        for rank in range(manifest.ranks):
            planted = fault if rank == FAULTY_RANK else None
            pipe = SimPipe(SimulatedWorker(rank, open_program, planted, whole), clock)
            link = Link(Connection(Side.COORDINATOR, Session(), rank, recorder), pipe)
            link.receive(Hello("little", "<f4", rank).to_bytes(), 0, deadline=clock.now() + 1)
            links.append(link)
        return tuple(links)

    outcome = run_block(manifest, connect, recorder)
    entries, tape = read_ledger(recorder.ledger()), read_tape(recorder.tape())
    return Recording(manifest, entries, tape, outcome.output)


@contextmanager
def healthy_worker(rank: int) -> Iterator[Pipe]:
    yield SimPipe(SimulatedWorker(rank, open_program, None, whole), VirtualClock())


@contextmanager
def trickling_worker(rank: int) -> Iterator[Pipe]:
    worker = SimulatedWorker(rank, open_program, None, byte_by_byte)
    yield SimPipe(worker, VirtualClock(), byte_by_byte)


@pytest.mark.parametrize("ranks", ["1", "2", "4"])
@pytest.mark.parametrize("order", ["rank", "pairwise"])
def test_a_clean_run_replays_on_both_sides(ranks: str, order: str) -> None:
    recording = simulated({"ranks": ranks, "sum_order": order, "epoch": "41"})
    assert recording.output is not None
    coordinator = replay_coordinator(recording, None)
    workers = replay_worker(recording, None, healthy_worker)
    assert (coordinator.difference, workers.difference) == (None, None)
    assert coordinator.frames == FRAMES * int(ranks)


def test_the_cuts_of_the_stream_are_no_matter() -> None:
    recording = simulated({"ranks": "2", "batch": "1", "sequence": "2"})
    assert replay_worker(recording, None, trickling_worker).difference is None


@pytest.mark.parametrize("kind", FAULT_KINDS)
@pytest.mark.parametrize("phase", FAULT_PHASES)
def test_a_faulty_run(kind: str, phase: str) -> None:
    fault = Fault(FaultKind(kind), phase, RANKS)
    recording = simulated({"batch": "1", "sequence": "2"}, fault)
    assert recording.failed
    assert recording.output is None
    # The coordinator does again what it did; a healthy worker does not, and the replay says where.
    assert replay_coordinator(recording, None).difference is None
    found = replay_worker(recording, None, healthy_worker).difference
    assert found is not None
    assert (found.rank, found.index) == (FAULTY_RANK, recording.entries[-1].index)
