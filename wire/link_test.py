"""Deadlines and reading, on a scripted pipe with a clock of its own."""

from __future__ import annotations

import pytest

from errors import ContractError, DeadlineError, MisuseError, PeerError
from wire.connection import Connection
from wire.frame import Buffer, Kind, Side
from wire.limits import FLAG_FOLDED, READ_BYTES
from wire.link import Link, Pipe
from wire.metadata import Ack, Command, Hello, Tensor
from wire.recorder import Recorder
from wire.session import Session
from wire.tape import read_tape

HELLO = Hello("little", "<f4", 0).to_bytes()
ACK = Ack({}, "sample", "00" * 32, 0, 1).to_bytes()
COMMAND = Command("only", None, 0, 0).to_bytes()
FAR = 1000.0


class ScriptedPipe(Pipe):
    """Hands out what was put in, at most `step` bytes a read; each read takes `read_seconds`."""

    def __init__(self, step: int = READ_BYTES, read_seconds: float = 0.0) -> None:
        self.incoming = bytearray()
        self.outgoing = bytearray()
        self.ended = False
        self.blocked = False
        self.closed = 0
        self.reads = 0
        self.now = 0.0
        self._step = step
        self._read_seconds = read_seconds

    def send(self, buffers: list[Buffer], deadline: float) -> None:
        if self.blocked:
            self.now = deadline
            raise DeadlineError("send", "not written in time")
        self.outgoing += b"".join(buffers)

    def receive(self, limit: int, deadline: float) -> bytes:
        self.reads += 1
        self.now += self._read_seconds
        if not self.incoming and not self.ended:
            self.now = max(self.now, deadline)
            raise DeadlineError("receive", "nothing came in time")
        size = min(limit, self._step)
        data = bytes(self.incoming[:size])
        del self.incoming[:size]
        return data

    def clock(self) -> float:
        return self.now

    def close(self) -> None:
        self.closed += 1

    def fileno(self) -> int:
        return -1


def frames_of_a_worker(*frames: tuple[Kind, bytes, bytes], flags: int = 0) -> bytes:
    """What a worker in OPEN sends."""
    worker = Connection(Side.WORKER, opened(Session(("only",), bool(flags))), 0)
    sent = [worker.send(kind, metadata, data, flags=flags) for kind, metadata, data in frames]
    return b"".join(buffer for buffers in sent for buffer in buffers)


def opened(session: Session) -> Session:
    session.adopt_epoch(1)
    for kind in (Kind.HELLO, Kind.ACK, Kind.COMMAND):
        session.stamp(kind.sender, kind)
    return session


def coordinator(pipe: Pipe, recorder: Recorder | None = None, *, folded: bool = False) -> Link:
    session = opened(Session(("only",), folded))
    return Link(Connection(Side.COORDINATOR, session, 0, recorder), pipe)


def partial(elements: int) -> tuple[bytes, bytes]:
    metadata = Tensor("<f4", "only", 0, (1, 1, elements), "only.partial").to_bytes()
    return metadata, bytes(range(256)) * (elements * 4 // 256)


@pytest.mark.parametrize("step", [1, 37, 100_000])
@pytest.mark.parametrize("elements", [64, 64 * 400])
def test_a_frame_arrives_however_it_is_cut(step: int, elements: int) -> None:
    metadata, payload = partial(elements)
    pipe = ScriptedPipe(step)
    pipe.incoming += frames_of_a_worker((Kind.PARTIAL, metadata, payload), flags=FLAG_FOLDED)
    frame = coordinator(pipe, folded=True).receive(metadata, deadline=FAR)
    assert bytes(frame.payload) == payload


def test_what_came_with_the_last_frame_needs_no_read() -> None:
    metadata, payload = partial(64)
    fence = b'{"phase":"only","rank":0,"report":null,"tensors":1}'
    pipe = ScriptedPipe()
    pipe.incoming += frames_of_a_worker((Kind.PARTIAL, metadata, payload), (Kind.FENCE, fence, b""))
    link = coordinator(pipe)
    link.receive(metadata, deadline=FAR)
    link.receive(fence, deadline=FAR)
    assert pipe.reads == 1


def test_send_writes_what_the_connection_made() -> None:
    pipe = ScriptedPipe()
    worker = Link(Connection(Side.WORKER, Session(), 0), pipe)
    worker.send(Kind.HELLO, HELLO, deadline=FAR)
    assert pipe.outgoing.endswith(HELLO)


def test_a_held_frame_goes_out_with_the_next() -> None:
    pipe, recorder = ScriptedPipe(), Recorder()
    session = Session(("only",))
    session.adopt_epoch(1)
    for kind in (Kind.HELLO, Kind.ACK):
        session.stamp(kind.sender, kind)
    link = Link(Connection(Side.COORDINATOR, session, 0, recorder), pipe)
    metadata = Tensor("<f4", "input", 0, (1, 1, 1), "x").to_bytes()
    link.send(Kind.INPUT, metadata, b"1234", hold=True, deadline=FAR)
    assert not pipe.outgoing
    with pytest.raises(MisuseError):
        link.receive(deadline=FAR)
    link.send(Kind.COMMAND, COMMAND, deadline=FAR)
    raw = [record.raw for record in read_tape(recorder.tape())]
    assert pipe.outgoing == b"".join(raw)
    assert [entry.kind for entry in recorder.entries()] == ["INPUT", "COMMAND"]


@pytest.mark.parametrize("arrived", [0, 1, 36, 60, 150])
def test_a_deadline_is_located_and_recorded_with_what_arrived(arrived: int) -> None:
    metadata, payload = partial(64)
    whole = frames_of_a_worker((Kind.PARTIAL, metadata, payload))
    recorder, pipe = Recorder(), ScriptedPipe()
    pipe.incoming += whole[:arrived]
    with pytest.raises(DeadlineError) as late:
        coordinator(pipe, recorder).receive(metadata, deadline=5.0)
    assert (late.value.code, late.value.rank, late.value.phase) == ("deadline.receive", 0, "only")
    (entry,) = recorder.entries()
    assert entry.error == "deadline.receive"
    assert entry.kind == ("PARTIAL" if arrived >= 36 else None)
    assert recorder.tape().endswith(whole[:arrived])


def test_bytes_that_trickle_in_do_not_extend_the_deadline() -> None:
    """S8, also for a peer that never lets a read block."""
    metadata, payload = partial(64)
    pipe = ScriptedPipe(step=1, read_seconds=0.01)
    pipe.incoming += frames_of_a_worker((Kind.PARTIAL, metadata, payload))
    with pytest.raises(DeadlineError) as late:
        coordinator(pipe).receive(metadata, deadline=1.0)
    assert late.value.code == "deadline.receive"
    assert 100 <= pipe.reads <= 101


def test_a_frame_that_is_there_is_taken_even_at_the_deadline() -> None:
    metadata, payload = partial(64)
    pipe = ScriptedPipe()
    pipe.now = 9.0
    pipe.incoming += frames_of_a_worker((Kind.PARTIAL, metadata, payload))
    assert coordinator(pipe).receive(metadata, deadline=9.0).kind is Kind.PARTIAL


def test_a_write_that_blocks_condemns_the_frame_being_written() -> None:
    recorder, pipe = Recorder(), ScriptedPipe()
    session = Session(("only",))
    session.adopt_epoch(1)
    for kind in (Kind.HELLO, Kind.ACK):
        session.stamp(kind.sender, kind)
    link = Link(Connection(Side.COORDINATOR, session, 0, recorder), pipe)
    pipe.blocked = True
    with pytest.raises(DeadlineError) as late:
        link.send(Kind.COMMAND, COMMAND, deadline=2.0)
    assert (late.value.code, late.value.phase) == ("deadline.send", "load")
    (entry,) = recorder.entries()
    assert (entry.kind, entry.error) == ("COMMAND", "deadline.send")


def test_before_ack_a_silent_coordinator_is_the_handshake() -> None:
    worker = Link(Connection(Side.WORKER, Session(), 0), ScriptedPipe())
    worker.send(Kind.HELLO, HELLO, deadline=1.0)
    with pytest.raises(DeadlineError) as late:
        worker.receive(ACK, deadline=1.0)
    assert late.value.code == "deadline.handshake"


def test_a_hello_that_cannot_be_written_is_the_handshake() -> None:
    pipe = ScriptedPipe()
    pipe.blocked = True
    worker = Link(Connection(Side.WORKER, Session(), 0), pipe)
    with pytest.raises(DeadlineError) as late:
        worker.send(Kind.HELLO, HELLO, deadline=1.0)
    assert late.value.code == "deadline.handshake"


def test_the_end_is_clean_for_the_side_that_may_see_it() -> None:
    session = Session(("only",))
    session.adopt_epoch(1)
    for kind in (Kind.HELLO, Kind.ACK, Kind.LOAD, Kind.FENCE):
        session.stamp(kind.sender, kind)
    pipe = ScriptedPipe()
    pipe.ended = True
    worker = Link(Connection(Side.WORKER, session, 0), pipe)
    assert worker.receive_or_end(deadline=FAR) is None
    with pytest.raises(MisuseError):
        worker.receive(deadline=FAR)


def test_the_end_anywhere_else_is_a_failure() -> None:
    pipe = ScriptedPipe()
    pipe.ended = True
    with pytest.raises(PeerError) as closed:
        coordinator(pipe).receive_or_end(deadline=FAR)
    assert (closed.value.code, closed.value.phase) == ("protocol.closed", "only")


def test_a_large_payload_that_ends_is_truncated() -> None:
    metadata, payload = partial(64 * 400)
    whole = frames_of_a_worker((Kind.PARTIAL, metadata, payload))
    pipe = ScriptedPipe()
    pipe.incoming += whole[:-1]
    pipe.ended = True
    with pytest.raises(PeerError) as cut:
        coordinator(pipe).receive(metadata, deadline=FAR)
    assert cut.value.code == "protocol.truncated"


def test_fail_and_close_reach_the_parts() -> None:
    pipe = ScriptedPipe()
    link = coordinator(pipe)
    failure = link.fail(ContractError("ranks_disagree", "other bytes"))
    assert (failure.code, failure.rank) == ("contract.ranks_disagree", 0)
    link.close()
    assert pipe.closed == 1
