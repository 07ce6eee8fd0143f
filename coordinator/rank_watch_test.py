"""The end of a rank is noticed at once while another is awaited; early frames are no end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Timer

import pytest

from coordinator.fake_rank import FakePipe
from coordinator.rank_watch import GRACE_MS, watch
from errors import DeadlineError, MisuseError, ProtocolError
from tools.python.tiers import mostly_exhaustive
from wire.connection import Connection
from wire.frame import Kind, Side
from wire.link import Link
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session
from wire.socket_pipe import SocketPipe

# Long enough that a wait which does not notice fails the test.
FAR_S = 30.0
SOON_S = 5.0


@dataclass
class Peer:
    """The worker's end."""

    rank: int
    stream: socket.socket

    def hello(self) -> None:
        connection = Connection(Side.WORKER, Session(), self.rank)
        metadata = Hello(byte_order="little", dtype="<f4", rank=self.rank).to_bytes()
        self.stream.sendall(b"".join(connection.send(Kind.HELLO, metadata)))


@dataclass
class Watched:
    links: list[Link]
    peers: list[Peer]
    recorder: Recorder
    arrived: list[int]
    # What happens once a rank's answer has been noticed.
    reactions: dict[int, Callable[[], None]]

    def receive(self, rank: int, seconds: float = FAR_S) -> Kind:
        return self.links[rank].receive(deadline=time.monotonic() + seconds).kind


@pytest.fixture(
    params=mostly_exhaustive(
        ["unix", "tcp", "unix, telling", "tcp, telling"],
        lambda kind: kind in ("unix", "tcp, telling"),
    )
)
def watched(request: pytest.FixtureRequest) -> Iterator[Watched]:
    recorder = Recorder(keep_bytes=True)
    links, peers = [], []
    for rank in range(3):
        ours, theirs = socket.socketpair() if "unix" in request.param else tcp_pair()
        links.append(
            Link(Connection(Side.COORDINATOR, Session(), rank, recorder), SocketPipe(ours))
        )
        peers.append(Peer(rank, theirs))
    arrived: list[int] = []
    reactions: dict[int, Callable[[], None]] = {}

    def tell(rank: int, link: Link) -> None:
        assert link is links[rank]
        arrived.append(rank)
        reactions.pop(rank, lambda: None)()

    telling = "telling" in request.param
    watch(links, tell if telling else None)
    yield Watched(links, peers, recorder, arrived, reactions)
    assert telling or not arrived
    for link in links:
        link.close()
    for peer in peers:
        peer.stream.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


def later(action: Callable[[], None]) -> None:
    Timer(0.05, action).start()


def test_frames_pass(watched: Watched) -> None:
    for rank in (2, 0, 1):
        later(watched.peers[rank].hello)
        assert watched.receive(rank) is Kind.HELLO


@pytest.mark.parametrize("gone", [1, 2])
def test_the_end_of_another_is_noticed_at_once(watched: Watched, gone: int) -> None:
    later(watched.peers[gone].stream.close)
    began = time.monotonic()
    with pytest.raises(ProtocolError) as failure:
        watched.receive(0)
    assert time.monotonic() - began < SOON_S
    assert (failure.value.code, failure.value.rank) == ("protocol.closed", gone)
    last = watched.recorder.entries()[-1]
    assert (last.rank, last.error) == (gone, "protocol.closed")


def test_the_awaited_rank_may_still_answer(watched: Watched) -> None:
    watched.peers[2].stream.close()
    Timer(GRACE_MS / 4000, watched.peers[0].hello).start()
    assert watched.receive(0) is Kind.HELLO
    with pytest.raises(ProtocolError) as failure:
        watched.receive(2)
    assert failure.value.rank == 2


def test_the_bytes_of_a_gone_rank_are_judged_in_its_turn(watched: Watched) -> None:
    """A truncated frame is called that, and not the end that followed it."""
    watched.peers[1].stream.sendall(b"RK")
    watched.peers[1].stream.close()
    later(watched.peers[0].hello)
    assert watched.receive(0) is Kind.HELLO
    with pytest.raises(ProtocolError) as failure:
        watched.receive(1)
    assert failure.value.code != "protocol.closed"


def test_what_another_sends_early_is_no_end(watched: Watched) -> None:
    watched.peers[1].hello()
    watched.peers[2].hello()
    began = time.process_time()
    with pytest.raises(DeadlineError) as failure:
        watched.receive(0, 0.3)
    assert failure.value.rank == 0
    # And the wait sleeps all the same.
    assert time.process_time() - began < 0.2


def test_the_awaited_rank_s_own_end(watched: Watched) -> None:
    later(watched.peers[0].stream.close)
    with pytest.raises(ProtocolError) as failure:
        watched.receive(0)
    assert failure.value.rank == 0


@pytest.mark.parametrize("watched", ["unix, telling", "tcp, telling"], indirect=True)
def test_who_has_answered_is_told_while_another_is_awaited(watched: Watched) -> None:
    """In the order of arrival; consumed in the order in which they are awaited."""
    watched.reactions[2] = watched.peers[1].hello
    watched.reactions[1] = watched.peers[0].hello
    watched.peers[2].hello()
    assert watched.receive(0) is Kind.HELLO
    assert watched.arrived == [2, 1]
    assert watched.receive(1) is Kind.HELLO
    assert watched.receive(2) is Kind.HELLO
    assert [entry.rank for entry in watched.recorder.entries()] == [0, 1, 2]


@pytest.mark.parametrize("watched", ["unix, telling"], indirect=True)
def test_after_a_wait_the_next_answer_is_told_again(watched: Watched) -> None:
    watched.peers[1].hello()
    with pytest.raises(DeadlineError):
        watched.receive(0, 0.1)
    assert watched.receive(1) is Kind.HELLO
    watched.peers[1].stream.sendall(b"more")
    with pytest.raises(DeadlineError):
        watched.receive(2, 0.1)
    assert watched.arrived == [1, 1]


def test_only_pipes_with_descriptors() -> None:
    link = Link(Connection(Side.COORDINATOR, Session(), 0), FakePipe(0))
    with pytest.raises(MisuseError):
        watch([link])
