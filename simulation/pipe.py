"""The in-memory pipe: a real WorkerCore behind the interface of a socket pipe.

Nothing runs by itself. Reading from the pipe runs the worker until it has written something; when
it has nothing to say, the virtual clock moves to the reader's deadline, so a timeout takes no time.
"""

from __future__ import annotations

from collections.abc import Callable

from errors import DeadlineError, PeerError
from simulation.clock import VirtualClock
from simulation.delivery import Delivery, whole
from simulation.faults import Fault, FaultInjector, RankEnded
from simulation.serving_faults import ServingInjector, Strike
from wire.connection import Connection
from wire.frame import Buffer, Side
from wire.link import Pipe
from wire.session import Session
from worker.core import Outgoing, WorkerCore
from worker.executor import ProgramOpener

# From a frame that a worker writes to the bytes that travel.
Rewrite = Callable[[bytes], bytes]


class _Output:
    """Where a simulated worker's bytes go; the target of its fault, if it has one."""

    def __init__(self, rewrite: Rewrite | None) -> None:
        self.waiting = bytearray()
        self.silent = False
        self._rewrite = rewrite

    def write(self, data: bytes) -> None:
        if not self.silent:
            self.waiting += data if self._rewrite is None else self._rewrite(data)

    def wait_for_hangup(self) -> None:
        # Nobody reads what comes after: the peer's end is the end of this simulation.
        self.silent = True


class SimulatedWorker:
    """One rank in memory: bytes in, bytes out, one session, then it has ended.

    rewrite: what becomes of its frames, for faults that no real worker has.
    """

    def __init__(
        self,
        rank: int,
        open_program: ProgramOpener,
        fault: Fault | Strike | None,
        delivery: Delivery,
        rewrite: Rewrite | None = None,
    ) -> None:
        session = Session()
        self._core = WorkerCore(rank, session, open_program)
        self._connection = Connection(Side.WORKER, session, rank, None)
        self._delivery = delivery
        self._inbox = bytearray()
        self._injector: FaultInjector | ServingInjector | None = None
        self.output = _Output(rewrite)
        self.ended = False
        self.failure: PeerError | None = None
        if isinstance(fault, Fault):
            self._injector = FaultInjector(fault, self.output)
        elif fault is not None:
            self._injector = ServingInjector(fault, self.output)
        self._guarded(self._core.start())

    def feed(self, data: bytes) -> None:
        """Bytes from the coordinator; they wait until the worker runs."""
        self._inbox += data

    def run(self) -> None:
        """Take one piece of what waits and act on the frames that it completes."""
        if self.ended or not self._inbox:
            return
        size = self._delivery(len(self._inbox))
        piece = bytes(self._inbox[:size])
        del self._inbox[:size]
        self._connection.receive_data(piece)
        try:
            while not self.ended:
                agreed = self._core.expected()
                frame = self._connection.next_frame(*(agreed or (None, None)))
                if frame is None:
                    return
                self._guarded(self._core.handle(frame))
        except PeerError as failure:
            self.failure, self.ended = failure, True

    def hang_up(self) -> None:
        """The coordinator is gone: after what still waits, the stream ends."""
        while self.can_run():
            self.run()
        if self.ended:
            return
        self._connection.receive_eof()
        try:
            self._connection.next_frame()
        except PeerError as failure:
            self.failure = failure
        self.ended = True

    def can_run(self) -> bool:
        return bool(self._inbox) and not self.ended

    def _guarded(self, outgoing: list[Outgoing]) -> None:
        try:
            for out in outgoing:
                kind, metadata, payload, flags = out
                buffers = self._connection.send(kind, metadata, payload, flags=flags)
                if self._injector is None:
                    self.output.write(b"".join(buffers))
                else:
                    self._injector.send(buffers)
        except RankEnded:
            self.ended = True


class SimPipe(Pipe):
    """The coordinator's end; implements wire/link.py's Pipe."""

    def __init__(
        self, worker: SimulatedWorker, clock: VirtualClock, delivery: Delivery = whole
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._delivery = delivery
        self.closed = False

    def send(self, buffers: list[Buffer], deadline: float) -> None:
        self._worker.feed(b"".join(buffers))

    def receive(self, limit: int, deadline: float) -> bytes:
        """At most `limit` bytes; b"" at the end. Raises DeadlineError at the virtual deadline."""
        worker, waiting = self._worker, self._worker.output.waiting
        while not waiting and worker.can_run():
            worker.run()
        if waiting:
            size = min(limit, self._delivery(len(waiting)))
            piece = bytes(waiting[:size])
            del waiting[:size]
            return piece
        if worker.ended and not worker.output.silent:
            return b""
        self._clock.advance_to(deadline)
        raise DeadlineError("receive", "nothing came in time")

    def clock(self) -> float:
        return self._clock.now()

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self._worker.hang_up()
