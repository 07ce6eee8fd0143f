"""Accepting the ranks: from a listening socket to one greeted link per rank.

Anything may connect here. A stranger (another protocol, random bytes, silence) is closed and
counted and never delays the ranks; the whole of it has one deadline (docs/spec/session.md S11).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from coordinator.processes import WorkerExit
from errors import ContractError, DeadlineError, MisuseError, PeerError, ProtocolError, TPError
from wire.connection import Connection
from wire.frame import Side
from wire.frame_reader import FrameReader
from wire.limits import READ_BYTES
from wire.link import Link
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session
from wire.socket_pipe import Listener, SocketPipe, Source, wait_readable

HELLO_PHASE = "hello"
AGREED_HELLO = ("little", "<f4")
# How often a run looks whether one of its own processes ended before it could connect.
LIVENESS_MS = 50
# Connections that may wait for their HELLO at once. A worker says it at once, so the one that has
# been silent for longest is the one to close when there are more.
PENDING_MAX = 64


@dataclass(eq=False)
class _Pending:
    pipe: SocketPipe
    reader: FrameReader = field(default_factory=FrameReader)
    raw: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Accepted:
    """One link per rank, in rank order, and how many other connections were turned away."""

    links: tuple[Link, ...]
    strangers: int


class Acceptor:
    """ended: the worker processes of this run that have ended already, in rank order.

    strangers: how many connections were turned away so far.
    """

    def __init__(
        self,
        listener: Listener,
        world_size: int,
        recorder: Recorder | None,
        ended: Callable[[], Sequence[WorkerExit]],
    ) -> None:
        self.strangers = 0
        self._listener = listener
        self._world_size = world_size
        self._recorder = recorder
        self._ended = ended
        self._pending: list[_Pending] = []
        self._ranks: dict[int, _Pending] = {}

    def accept(self, deadline: float) -> Accepted:
        """Wait until every rank said HELLO. Raises PeerError; every connection is closed then."""
        try:
            while len(self._ranks) < self._world_size:
                self._wait(deadline)
            links = self._greet()
        except BaseException as failure:
            for waiting in self._ranks.values():
                waiting.pipe.close()
            if isinstance(failure, PeerError):
                self._record(failure)
            raise
        finally:
            for waiting in list(self._pending):
                self._turn_away(waiting)
        return Accepted(links, self.strangers)

    def _wait(self, deadline: float) -> None:
        now = time.monotonic()
        if now >= deadline:
            missing = sorted(set(range(self._world_size)) - set(self._ranks))
            raise DeadlineError(
                "handshake",
                f"no HELLO in time from {len(missing)} of {self._world_size} ranks: {missing}",
                rank=missing[0],
                phase=HELLO_PHASE,
            )
        # Asked before the connections: what a process said before it ended is read first.
        ended = self._ended()
        waiting = list(self._pending)
        sources: list[Source] = [self._listener, *(pending.pipe for pending in waiting)]
        ready = wait_readable(sources, min(deadline, now + LIVENESS_MS / 1000))
        for index in ready:
            if index > 0:
                self._read(waiting[index - 1], deadline)
        if 0 in ready:
            self._admit()
        if not ready:
            self._check_alive(ended)

    def _check_alive(self, ended: Sequence[WorkerExit]) -> None:
        for gone in ended:
            if gone.rank not in self._ranks:
                raise ProtocolError(
                    "closed",
                    f"its process ended with status {gone.status} before HELLO: {gone.last_words}",
                    rank=gone.rank,
                    phase=HELLO_PHASE,
                )

    def _admit(self) -> None:
        """One connection more; never waits, also when the peer has left again."""
        if len(self._pending) >= PENDING_MAX:
            self._turn_away(self._pending[0])
        try:
            self._pending.append(_Pending(self._listener.accept(time.monotonic())))
        except DeadlineError:
            return
        except OSError as failure:
            # Out of descriptors: those of silent connections are the ones to spare.
            if not self._pending:
                message = f"can't accept a connection: {failure.strerror}"
                raise TPError("process.resources", message) from None
            self._turn_away(self._pending[0])

    def _record(self, failure: PeerError) -> None:
        """S12: the wait that failed is in the ledger, alone.

        Which other ranks had come by then is a matter of time, so their HELLOs are not.
        """
        rank = failure.rank
        if rank is not None and 0 <= rank < self._world_size:
            Connection(Side.COORDINATOR, Session(), rank, self._recorder).fail(failure)

    def _turn_away(self, waiting: _Pending) -> None:
        self._pending.remove(waiting)
        waiting.pipe.close()
        self.strangers += 1

    def _read(self, waiting: _Pending, deadline: float) -> None:
        """One read; a refused first frame makes a stranger, a HELLO makes a rank."""
        try:
            hello = _read_hello(waiting, deadline)
        except PeerError:
            self._turn_away(waiting)
            return
        if hello is not None:
            self._pending.remove(waiting)
            self._seat(hello, waiting)

    def _seat(self, hello: Hello, waiting: _Pending) -> None:
        problem = None
        if not 0 <= hello.rank < self._world_size:
            problem = f"rank is {hello.rank}, agreed 0 to {self._world_size - 1}"
        elif hello.rank in self._ranks:
            problem = f"two workers say they are rank {hello.rank}"
        elif (hello.byte_order, hello.dtype) != AGREED_HELLO:
            problem = f"byte_order, dtype are {hello.byte_order}, {hello.dtype}; agreed little, <f4"
        if problem is not None:
            waiting.pipe.close()
            raise ContractError("metadata", problem, rank=hello.rank, phase=HELLO_PHASE)
        self._ranks[hello.rank] = waiting

    def _greet(self) -> tuple[Link, ...]:
        """Give every rank its connection, in rank order, whatever order they came in."""
        links = []
        for rank in range(self._world_size):
            waiting = self._ranks[rank]
            connection = Connection(Side.COORDINATOR, Session(), rank, self._recorder)
            connection.receive_data(waiting.raw)
            hello = Hello(byte_order="little", dtype="<f4", rank=rank)
            if connection.next_frame(hello.to_bytes(), 0) is None:
                raise MisuseError(f"rank {rank} was seated without a whole HELLO")
            links.append(Link(connection, waiting.pipe))
        return tuple(links)


def _read_hello(waiting: _Pending, deadline: float) -> Hello | None:
    """The HELLO that one more read completes; None while it is not whole.

    Raises PeerError for anything else, as soon as its header is known: nothing that a stranger
    announces is waited for or kept.
    """
    data = waiting.pipe.receive(READ_BYTES, deadline)
    if not data:
        raise ProtocolError("closed", "left before HELLO")
    waiting.raw += data
    waiting.reader.receive_data(data)
    frame = waiting.reader.next_frame()
    header = waiting.reader.header if frame is None else frame.header
    if header is not None:
        Session().check_and_advance(Side.WORKER, header)
    return None if frame is None else Hello.parse(frame.metadata)
