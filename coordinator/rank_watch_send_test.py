"""A rank that does not read keeps the write waiting; the end of another is noticed all the same.

Over real sockets, with processes at their other ends: stopped and killed as an operator would.
"""

from __future__ import annotations

import errno
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from coordinator.group import Agreement, Group
from coordinator.rank_watch import GRACE_MS, watch
from coordinator.simulated_ranks import Milliseconds
from coordinator.step_timing import StepTimer
from errors import DeadlineError, PeerError
from wire.connection import Connection
from wire.frame import Kind, Side
from wire.link import Link
from wire.meanwhile import meanwhile
from wire.metadata import Command, Hello
from wire.recorder import Recorder
from wire.session import Session
from wire.socket_pipe import SocketPipe
from worker.toy_program import wire_spec

RANKS = 3
# Contract: a dead rank is named within a second of its death.
NOTICED_S = 1.0
FAR_S = 20.0
HELLO = Hello(byte_order="little", dtype="<f4", rank=0).to_bytes()
COMMAND = Command("only", None, 0, 0).to_bytes()
_HOLDER = "import os, time; os.write(1, b'up'); time.sleep(600)"


class Rank:
    """A process that holds a connection's other end and neither reads nor writes."""

    def __init__(self, family: str) -> None:
        self.ours, self.theirs = socket.socketpair() if family == "unix" else tcp_pair()
        self.process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _HOLDER],
            pass_fds=[self.theirs.fileno()],
            stdout=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.read(2) == b"up"

    def signal(self, number: int) -> None:
        """Only the process holds the other end by then."""
        self.theirs.close()
        self.process.send_signal(number)

    def end(self) -> None:
        self.theirs.close()
        self.process.kill()
        self.process.wait(FAR_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


class Watched:
    """Three ranks, loaded and idle, watched as a service watches them."""

    def __init__(self, family: str) -> None:
        self.recorder = Recorder(keep_bytes=True)
        self.ranks = [Rank(family) for _ in range(RANKS)]
        self.links = []
        for number, rank in enumerate(self.ranks):
            session = Session(("only",))
            session.adopt_epoch(1)
            for kind in (Kind.HELLO, Kind.ACK, Kind.LOAD, Kind.FENCE):
                session.stamp(kind.sender, kind)
            connection = Connection(Side.COORDINATOR, session, number, self.recorder)
            self.links.append(Link(connection, SocketPipe(rank.ours)))
        StepTimer(time.monotonic).attach(self.links, watched=True)
        watch(self.links)

    def fill(self, rank: int) -> int:
        """Until nothing more fits; how many bytes did."""
        filled = 0
        while not (left := self.links[rank].pipe.send_some([bytes(65_536)])):
            filled += 65_536
        return filled + 65_536 - sum(map(len, left))

    def send(self, rank: int, seconds: float = FAR_S) -> None:
        deadline = time.monotonic() + seconds
        self.links[rank].send(Kind.COMMAND, COMMAND, deadline=deadline)

    def failure(self, rank: int, seconds: float = FAR_S) -> PeerError:
        with pytest.raises(PeerError) as failed:
            self.send(rank, seconds)
        return failed.value

    def answer(self, rank: int) -> None:
        """Any frame."""
        connection = Connection(Side.WORKER, Session(), rank)
        self.ranks[rank].theirs.sendall(b"".join(connection.send(Kind.HELLO, HELLO)))


@pytest.fixture(params=["unix", "tcp"])
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    made = Watched(request.param)
    yield made
    for link in made.links:
        link.close()
    for rank in made.ranks:
        rank.end()


class Killing:
    """Kills ranks a moment after the write has begun."""

    def __init__(self, watched: Watched, ranks: list[int]) -> None:
        self._watched = watched
        self._ranks = ranks
        self.at = 0.0

    def __call__(self) -> None:
        time.sleep(0.1)
        self.at = time.monotonic()
        for rank in self._ranks:
            self._watched.ranks[rank].signal(signal.SIGKILL)


@pytest.mark.parametrize(("stopped", "killed"), [(0, 1), (0, 2), (1, 0), (2, 1)])
def test_a_killed_rank_is_named_while_another_does_not_read(
    watched: Watched, stopped: int, killed: int
) -> None:
    watched.ranks[stopped].signal(signal.SIGSTOP)
    watched.fill(stopped)
    killing = Killing(watched, [killed])
    with meanwhile(killing):
        failure = watched.failure(stopped)
        noticed_at = time.monotonic()
    assert (failure.code, failure.rank) == ("protocol.closed", killed)
    assert noticed_at - killing.at < NOTICED_S
    last = watched.recorder.entries()[-1]
    assert (last.rank, last.error) == (killed, failure.code)


def test_a_group_names_it_and_stops(watched: Watched) -> None:
    for link in watched.links:
        link.connection.session = session = Session()
        session.stamp(Side.WORKER, Kind.HELLO)
    agreement = Agreement(wire_spec(RANKS), "0" * 64, {}, 1, "pairwise")
    group = Group(agreement, watched.links, Milliseconds(send_ms=20_000))
    watched.ranks[0].signal(signal.SIGSTOP)
    watched.fill(0)
    killing = Killing(watched, [1])
    with meanwhile(killing):
        with pytest.raises(PeerError):
            group.open()
        noticed_at = time.monotonic()
    assert group.poison is not None
    assert (group.poison.code, group.poison.rank) == ("protocol.closed", 1)
    assert noticed_at - killing.at < NOTICED_S


def test_of_several_the_lowest_is_named(watched: Watched) -> None:
    watched.ranks[0].signal(signal.SIGSTOP)
    watched.fill(0)
    for rank in (2, 1):
        watched.ranks[rank].end()
    assert watched.failure(0).rank == 1


def test_one_that_leaves_unread_bytes_is_named_with_its_number(watched: Watched) -> None:
    """The answer to what was sent to it is due, so nothing that it says is out of turn."""
    watched.send(1)
    watched.fill(0)
    watched.ranks[1].end()
    failure = watched.failure(0)
    assert (failure.code, failure.rank) == ("protocol.closed", 1)
    assert failure.errno == errno.ECONNRESET


def test_a_rank_that_reads_slowly_does_not_hide_it(watched: Watched) -> None:
    """Each read makes some room, and none of them begins the grace again."""
    watched.fill(0)
    stop = threading.Event()
    reader = watched.ranks[0].theirs
    reader.settimeout(FAR_S)

    def drip() -> None:
        killing()
        while not stop.wait(GRACE_MS / 4000):
            with suppress(OSError):
                reader.recv(1 << 20)

    killing = Killing(watched, [1])
    metadata, payload = tensor(8 << 20)
    with meanwhile(drip):
        try:
            with pytest.raises(PeerError) as failed:
                watched.links[0].send(
                    Kind.INPUT, metadata, payload, deadline=time.monotonic() + FAR_S
                )
            noticed_at = time.monotonic()
        finally:
            stop.set()
    assert failed.value.rank == 1
    assert noticed_at - killing.at < NOTICED_S


def tensor(size: int) -> tuple[bytes, bytes]:
    shape = [1, 1, size // 4]
    metadata = f'{{"dtype":"<f4","phase":"input","rank":0,"shape":{shape},"tensor":"x"}}'
    return metadata.replace(" ", "").encode("ascii"), bytes(size)


def test_the_rank_may_still_read(watched: Watched) -> None:
    """Then the gone one is judged in its turn, with the bytes that it left behind."""
    watched.ranks[1].theirs.sendall(b"RK")
    watched.ranks[1].end()
    filled = watched.fill(0)

    def read() -> None:
        time.sleep(GRACE_MS / 4000)
        left = filled
        while left > 0:
            left -= len(watched.ranks[0].theirs.recv(min(left, 65_536)))

    with meanwhile(read):
        watched.send(0)
    with pytest.raises(PeerError) as failed:
        watched.links[1].receive(deadline=time.monotonic() + FAR_S)
    assert failed.value.code == "protocol.truncated"


@pytest.mark.parametrize("read", [False, True])
def test_a_frame_out_of_turn_is_named(watched: Watched, read: bool) -> None:
    """read: its bytes came with those of the frame before, and wait in the connection."""
    watched.fill(0)
    if read:
        connection = Connection(Side.WORKER, Session(), 1)
        raw = b"".join(connection.send(Kind.HELLO, HELLO))
        watched.links[1].connection.receive_data(raw)
    else:
        watched.answer(1)
    began = time.monotonic()
    failure = watched.failure(0)
    assert (failure.code, failure.rank) == ("contract.epoch", 1)
    assert time.monotonic() - began < NOTICED_S


def test_half_a_frame_out_of_turn_is_that_rank_s_alone(watched: Watched) -> None:
    watched.fill(0)
    watched.ranks[1].theirs.sendall(b"RK")
    failure = watched.failure(0)
    assert (failure.code, failure.rank) == ("deadline.receive", 1)
    # The last entry, and the only one with an error.
    errors = [(entry.rank, entry.error) for entry in watched.recorder.entries()]
    assert errors == [(0, None), (1, "deadline.receive")]


def test_an_answer_that_is_due_is_no_failure(watched: Watched) -> None:
    """And the wait sleeps all the same."""
    watched.send(1)
    watched.fill(0)
    watched.answer(1)
    began = time.process_time()
    failure = watched.failure(0, 0.4)
    assert (failure.code, failure.rank) == ("deadline.send", 0)
    assert isinstance(failure, DeadlineError)
    assert time.process_time() - began < 0.3


def test_the_written_rank_s_own_end(watched: Watched) -> None:
    """S7: not reported by the write, but by the next read."""
    watched.fill(0)
    killing = Killing(watched, [0])
    with meanwhile(killing):
        watched.send(0)
    with pytest.raises(PeerError) as failed:
        watched.links[0].receive(deadline=time.monotonic() + FAR_S)
    assert (failed.value.code, failed.value.rank) == ("protocol.closed", 0)
    assert failed.value.errno in (errno.EPIPE, errno.ECONNRESET)
