"""One run of the block over fake ranks in memory: what is sent, and how it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.block_run import run_block, weight_source
from coordinator.fake_rank import FakePipe, Tamper
from errors import DeadlineError, MisuseError
from manifest.run_manifest import from_flags
from program.block import WORLD_SIZES, block_spec, input_payload, weight_payload
from wire.connection import Connection
from wire.frame import Kind, Side, encode
from wire.frame_reader import FrameReader
from wire.ledger import Entry
from wire.link import Link
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session
from wire.tape import read_tape

MANIFEST = from_flags({"ranks": "2", "batch": "1", "sequence": "3", "seed": "11", "epoch": "5"})


class NotedPipe(FakePipe):
    closed = False

    def close(self) -> None:
        self.closed = True


class Ranks:
    """Links to fake ranks, as an accepting coordinator would hand them over."""

    def __init__(self, world_size: int, tamper: Tamper | None = None) -> None:
        self.recorder = Recorder(keep_bytes=True)
        self.pipes = [NotedPipe(rank, tamper) for rank in range(world_size)]

    def connect(self, recorder: Recorder) -> tuple[Link, ...]:
        links = []
        for rank, pipe in enumerate(self.pipes):
            link = Link(Connection(Side.COORDINATOR, Session(), rank, recorder), pipe)
            link.receive(Hello("little", "<f4", rank).to_bytes(), 0, deadline=1.0)
            links.append(link)
        return tuple(links)

    def sent(self, kind: Kind, rank: int) -> list[bytes]:
        """Payloads of the frames of a kind to a rank."""
        reader, payloads = FrameReader(), []
        for record in read_tape(self.recorder.tape()):
            if record.sender is Side.COORDINATOR and record.rank == rank:
                reader.receive_data(record.raw)
        while (frame := reader.next_frame()) is not None:
            if frame.kind is kind:
                payloads.append(bytes(frame.payload))
        return payloads


def steps(entries: list[Entry]) -> list[tuple[str, int, str | None]]:
    return [(entry.direction, entry.rank, entry.kind) for entry in entries]


def test_the_order_of_the_specification() -> None:
    """docs/spec/session.md S6, written out for two ranks."""
    ranks = Ranks(2)
    outcome = run_block(MANIFEST, ranks.connect, ranks.recorder)
    assert outcome.failure is None
    expected: list[tuple[str, int, str]] = [("receive", rank, "HELLO") for rank in (0, 1)]
    expected += [("send", rank, "ACK") for rank in (0, 1)]
    expected += [("send", rank, "WEIGHT") for rank in (0, 1) for _ in range(7)]
    expected += [("send", rank, kind) for rank in (0, 1) for kind in ("INPUT", "COMMAND")]
    expected += [("receive", rank, kind) for rank in (0, 1) for kind in ("PARTIAL", "FENCE")]
    expected += [("send", rank, kind) for rank in (0, 1) for kind in ("REDUCTION", "COMMAND")]
    expected += [("receive", rank, kind) for rank in (0, 1) for kind in ("PARTIAL", "FENCE")]
    expected += [("send", rank, "REDUCTION") for rank in (0, 1)]
    expected += [("receive", rank, "RESULT") for rank in (0, 1)]
    assert steps(ranks.recorder.entries()) == expected
    assert {entry.epoch for entry in ranks.recorder.entries()} == {0, 5}


def test_what_is_sent_and_what_comes_out() -> None:
    ranks = Ranks(2)
    outcome = run_block(MANIFEST, ranks.connect, ranks.recorder)
    for rank in range(2):
        weights = [weight_payload(11, weight, rank, 2) for weight in block_spec(2).weights]
        assert ranks.sent(Kind.WEIGHT, rank) == weights
        assert ranks.sent(Kind.INPUT, rank) == [input_payload(11, 1, 3)]
    # The fake ranks hand back the last sum, so what comes out is what went to all of them.
    last = {rank: ranks.sent(Kind.REDUCTION, rank)[-1] for rank in range(2)}
    assert outcome.output == last[0] == last[1]
    assert all(pipe.closed for pipe in ranks.pipes)


def test_no_failure_shows_an_output() -> None:
    """Each frame of each rank lost in turn: every time that rank is named and all is closed."""
    frames = 6
    for rank in range(2):
        for lost in range(1, frames):
            ranks = Ranks(2, lose(rank, lost))
            outcome = run_block(MANIFEST, ranks.connect, ranks.recorder)
            assert outcome.output is None
            assert outcome.failure is not None
            assert (outcome.failure.code, outcome.failure.rank) == ("deadline.receive", rank)
            assert all(pipe.closed for pipe in ranks.pipes)
            assert ranks.recorder.entries()[-1].error == "deadline.receive"


def lose(rank: int, index: int) -> Tamper:
    """From this frame on the rank is silent."""

    def tamper(at_rank: int, at_index: int, raw: bytes) -> bytes | None:
        return None if (at_rank, at_index) == (rank, index) else raw

    return tamper


def test_a_rank_with_another_result_is_found() -> None:
    """All ranks return the same bytes; rank 1 computed something else."""

    def tamper(rank: int, index: int, raw: bytes) -> bytes:
        if (rank, index) != (1, 5):
            return raw
        reader = FrameReader()
        reader.receive_data(raw)
        frame = reader.next_frame()
        assert frame is not None
        payload = bytearray(frame.payload)
        payload[0] ^= 1
        head = frame.header
        _, buffers = encode(
            head.kind,
            epoch=head.epoch,
            sequence=head.sequence,
            metadata=frame.metadata,
            payload=bytes(payload),
        )
        return b"".join(buffers)

    ranks = Ranks(2, tamper)
    outcome = run_block(MANIFEST, ranks.connect, ranks.recorder)
    assert outcome.failure is not None
    assert (outcome.failure.code, outcome.failure.rank) == ("contract.ranks_disagree", 1)
    last = ranks.recorder.entries()[-1]
    assert (last.kind, last.rank, last.error) == ("RESULT", 1, "contract.ranks_disagree")


def test_ranks_that_do_not_come() -> None:
    def nobody(recorder: Recorder) -> tuple[Link, ...]:
        raise DeadlineError("handshake", "nobody", rank=0, phase="hello")

    outcome = run_block(MANIFEST, nobody, Recorder())
    assert outcome.output is None
    assert outcome.failure is not None
    assert outcome.failure.code == "deadline.handshake"


def test_a_mistake_of_ours_is_not_an_outcome() -> None:
    ranks = Ranks(1)
    with pytest.raises(MisuseError):
        run_block(MANIFEST, ranks.connect, ranks.recorder)
    assert all(pipe.closed for pipe in ranks.pipes)


@pytest.mark.parametrize("world_size", WORLD_SIZES)
def test_slices_of_the_weights(world_size: int) -> None:
    """What the ranks get of a weight is, together, the weight."""
    spec = block_spec(world_size)
    source: Callable[[str, int], bytes] = weight_source(3, spec)
    whole = weight_source(3, block_spec(1))
    for weight in spec.weights:
        pieces = [source(weight.name, rank) for rank in range(world_size)]
        assert sum(len(piece) for piece in pieces) == len(whole(weight.name, 0))
        assert len({len(piece) for piece in pieces}) == 1
    with pytest.raises(KeyError):
        source("no such weight", 0)
