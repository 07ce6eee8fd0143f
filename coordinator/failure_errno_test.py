"""What the operating system said of an end, from the socket to the page; the code is the same."""

from __future__ import annotations

import errno
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

import pytest

from coordinator.engine import Engine, Failure
from coordinator.engine_inbox import Inbox
from coordinator.engine_ranks import LinkedRanks
from coordinator.fake_ranks import LIMITS
from coordinator.group import Agreement, Group
from coordinator.model_run import explained
from coordinator.model_session import ModelSession
from coordinator.processes import WorkerExit
from coordinator.rank_watch import watch
from coordinator.report import render_refusal_json
from coordinator.scheduler import Scheduler
from coordinator.service_state import failure_json, state_json
from coordinator.simulated_ranks import Milliseconds
from coordinator.step_timing import StepTimer
from coordinator.wake import Wake
from errors import PeerError
from wire.connection import Connection
from wire.frame import Kind, Side
from wire.frame_reader import FrameReader
from wire.link import Link
from wire.metadata import Command
from wire.recorder import Recorder
from wire.session import Session
from wire.socket_pipe import SocketPipe
from worker.toy_program import local_spec

RANKS, GONE = 2, 1
FAR_S = 30.0


@dataclass
class StubSession:
    """What the ranks of an engine ask of a loaded model."""

    group: Group
    reports: tuple[()] = ()
    last_reports: None = None


class Served:
    """An engine over real sockets whose other ends are here; every rank is loaded and idle."""

    def __init__(self, family: str) -> None:
        self.recorder = Recorder(keep_bytes=True)
        self.links: list[Link] = []
        self.peers: list[socket.socket] = []
        for rank in range(RANKS):
            ours, theirs = socket.socketpair() if family == "unix" else tcp_pair()
            session = Session(("only",))
            session.adopt_epoch(1)
            for kind in (Kind.HELLO, Kind.ACK, Kind.LOAD, Kind.FENCE):
                session.stamp(kind.sender, kind)
            connection = Connection(Side.COORDINATOR, session, rank, self.recorder)
            self.links.append(Link(connection, SocketPipe(ours)))
            self.peers.append(theirs)
        StepTimer(time.monotonic).attach(self.links, watched=True)
        watch(self.links)
        agreement = Agreement(local_spec(RANKS), "0" * 64, {}, 1, "pairwise")
        group = Group(agreement, self.links, Milliseconds())
        self.wake = Wake()
        ranks = LinkedRanks(
            cast(ModelSession, StubSession(group)), self.links, self.wake, {}, self._end
        )
        scheduler = Scheduler(LIMITS, step_tokens=8, waiting_max=1)
        self.engine = Engine(
            ranks, scheduler, Inbox(1, lambda: None), heartbeat_s=60.0, clock=time.monotonic
        )

    def _end(self, cause: PeerError) -> PeerError:
        return explained(cause, [WorkerExit(GONE, 4711, 1, False, "out of memory")])

    def command(self) -> None:
        """Something is written, and its answer is due."""
        metadata = Command("only", None, GONE, 0).to_bytes()
        deadline = time.monotonic() + FAR_S
        self.links[GONE].send(Kind.COMMAND, metadata, deadline=deadline)

    def latched(self) -> Failure:
        self.engine.wait()
        failure = self.engine.failure
        assert failure is not None
        return failure

    def close(self) -> None:
        self.wake.close()
        for link in self.links:
            link.close()
        for peer in self.peers:
            peer.close()


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        return ours, server.accept()[0]


def reset(served: Served) -> None:
    peer = served.peers[GONE]
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def end(served: Served) -> None:
    served.peers[GONE].close()


def broken_write(served: Served) -> None:
    served.peers[GONE].close()
    served.command()


def reset_while_another_is_awaited(served: Served) -> None:
    """The wait that the watch ends."""
    reset(served)
    with pytest.raises(PeerError):
        served.links[0].receive(deadline=time.monotonic() + FAR_S)


CASES: dict[str, tuple[str, Callable[[Served], None], str | None]] = {
    "reset": ("tcp", reset, "ECONNRESET"),
    "end": ("tcp", end, None),
    "end, unix": ("unix", end, None),
    "broken write": ("unix", broken_write, "EPIPE"),
    "watched": ("tcp", reset_while_another_is_awaited, "ECONNRESET"),
}


@pytest.fixture
def make() -> Iterator[Callable[[str], Served]]:
    made: list[Served] = []

    def one(family: str) -> Served:
        made.append(Served(family))
        return made[-1]

    yield one
    for served in made:
        served.close()


def demand_latched(served: Served, act: Callable[[Served], None], name: str | None) -> None:
    act(served)
    failure = served.latched()
    number = None if name is None else getattr(errno, name)
    cause = failure.cause
    assert (cause.code, cause.rank, failure.step) == ("protocol.closed", GONE, None)
    assert "out of memory" in cause.message
    assert (cause.errno, cause.errno_name) == (number, name)
    shown = (failure_json(failure), cause_of(state_json(served.engine.snapshot)))
    for page in (*shown, json.loads(render_refusal_json(cause))["error"]):
        assert (page["errno"], page["errno_name"]) == (number, name)


def cause_of(state: dict[str, object]) -> dict[str, object]:
    failure = cast(dict[str, dict[str, object]], state["failure"])
    return failure["cause"]


@pytest.mark.parametrize(("family", "act", "name"), CASES.values(), ids=CASES)
def test_the_number_is_latched_and_shown(
    make: Callable[[str], Served], family: str, act: Callable[[Served], None], name: str | None
) -> None:
    demand_latched(make(family), act, name)


def test_evidence_does_not_depend_on_it(make: Callable[[str], Served]) -> None:
    """The kernel decides whether an end is a reset; the ledger and the tape do not know."""
    kept = []
    for act in (reset, end):
        served = make("tcp")
        act(served)
        served.latched()
        kept.append((served.recorder.ledger(), served.recorder.tape()))
    assert kept[0] == kept[1]


def _without_errno(method: str) -> Callable[..., PeerError]:
    original = getattr(PeerError, method)

    def dropping(failure: PeerError, *given: object) -> PeerError:
        copy: PeerError = original(failure, *given)
        copy.errno = None
        return copy

    return dropping


def _end_without_errno(reader: FrameReader, number: int | None = None) -> None:
    reader._ended = True


PLANTED: dict[str, tuple[type, str, Callable[..., object]]] = {
    "the pipe forgets": (SocketPipe, "broken_by", lambda pipe: None),
    "the reader forgets": (FrameReader, "receive_eof", _end_without_errno),
    "lost where it is located": (PeerError, "located", _without_errno("located")),
    "lost in other words": (PeerError, "reworded", _without_errno("reworded")),
}


@pytest.mark.parametrize(("owner", "method", "fault"), PLANTED.values(), ids=PLANTED)
def test_a_dropped_number_is_noticed(
    make: Callable[[str], Served],
    monkeypatch: pytest.MonkeyPatch,
    owner: type,
    method: str,
    fault: Callable[..., object],
) -> None:
    served = make("tcp")
    monkeypatch.setattr(owner, method, fault)
    with pytest.raises(AssertionError, match="ECONNRESET"):
        demand_latched(served, reset, "ECONNRESET")
