"""Accepting the ranks: from a listening socket to one greeted link per rank.

Anything may connect here. A stranger (another protocol, random bytes, silence) is closed and
counted and never delays the ranks; the whole of it has one deadline (docs/spec/session.md S11).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from coordinator.processes import WorkerExit
from errors import ContractError, DeadlineError, PeerError, ProtocolError
from wire.connection import Connection
from wire.frame import Kind, Side
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
_LIVENESS_S = 0.05
# Connections that may wait for their HELLO at once; one more is closed at once.
_PENDING_MAX = 64


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
    """ended: asks whether a worker process has ended early; None while all run."""

    def __init__(
        self,
        listener: Listener,
        world_size: int,
        recorder: Recorder | None,
        ended: Callable[[], WorkerExit | None],
    ) -> None:
        self._listener = listener
        self._world_size = world_size
        self._recorder = recorder
        self._ended = ended
        self._pending: list[_Pending] = []
        self._ranks: dict[int, _Pending] = {}
        self._strangers = 0

    def accept(self, deadline: float) -> Accepted:
        """Wait until every rank said HELLO. Raises PeerError; every connection is closed then."""
        try:
            while len(self._ranks) < self._world_size:
                self._wait(deadline)
            links = self._greet()
        except BaseException:
            for waiting in self._ranks.values():
                waiting.pipe.close()
            raise
        finally:
            for waiting in self._pending:
                waiting.pipe.close()
                self._strangers += 1
            self._pending.clear()
        return Accepted(links, self._strangers)

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
        waiting = list(self._pending)
        sources: list[Source] = [self._listener, *(pending.pipe for pending in waiting)]
        for index in wait_readable(sources, min(deadline, now + _LIVENESS_S)):
            if index == 0:
                self._admit(deadline)
            else:
                self._read(waiting[index - 1], deadline)
        self._check_alive()

    def _check_alive(self) -> None:
        gone = self._ended()
        if gone is not None and gone.rank not in self._ranks:
            raise ProtocolError(
                "closed",
                f"its process ended with status {gone.status} before HELLO: {gone.last_words}",
                rank=gone.rank,
                phase=HELLO_PHASE,
            )

    def _admit(self, deadline: float) -> None:
        pipe = self._listener.accept(deadline)
        if len(self._pending) >= _PENDING_MAX:
            pipe.close()
            self._strangers += 1
            return
        self._pending.append(_Pending(pipe))

    def _read(self, waiting: _Pending, deadline: float) -> None:
        """One read; a refused first frame makes a stranger, a HELLO makes a rank."""
        try:
            data = waiting.pipe.receive(READ_BYTES, deadline)
            if not data:
                raise ProtocolError("closed", "left before HELLO")
            waiting.raw += data
            waiting.reader.receive_data(data)
            frame = waiting.reader.next_frame()
            if frame is None:
                return
            if frame.kind is not Kind.HELLO:
                raise ContractError("kind", f"first frame is {frame.kind.name}")
            hello = Hello.parse(frame.metadata)
        except PeerError:
            self._pending.remove(waiting)
            waiting.pipe.close()
            self._strangers += 1
            return
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
                raise ProtocolError("truncated", "HELLO", rank=rank, phase=HELLO_PHASE)
            links.append(Link(connection, waiting.pipe))
        return tuple(links)
