"""A worker for tests: it speaks the block's protocol correctly and computes nothing.

Its partials depend on its rank and the stage alone; its result is the last reduction it was sent.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from coordinator.block_run import run_block
from coordinator.run_files import LEDGER, MANIFEST, OUTPUT, TAPE, RunFiles
from errors import DeadlineError
from manifest.run_manifest import RunManifest
from wire.connection import Connection
from wire.frame import Buffer, Frame, Kind, Side
from wire.link import Link, Pipe
from wire.metadata import Ack, Fence, Hello, Result, Tensor, parse
from wire.recorder import Recorder
from wire.session import Session, State

PHASES = ("attention", "mlp")
# Changes a rank's frame before it is sent (rank, index of the frame, bytes); None: it falls silent.
Tamper = Callable[[int, int, bytes], bytes | None]


@dataclass(frozen=True)
class FakeFrame:
    """One frame to send."""

    kind: Kind
    metadata: bytes
    payload: Buffer = b""
    flags: int = 0


class FakeWorker:
    """A worker's answers. bias: added to every element of its partials."""

    def __init__(self, rank: int, session: Session, bias: float = 0.0) -> None:
        self._rank = rank
        self._session = session
        self._bias = bias
        self._shape: tuple[int, ...] = ()

    def start(self) -> Sequence[FakeFrame]:
        hello = Hello(byte_order="little", dtype="<f4", rank=self._rank)
        return [FakeFrame(Kind.HELLO, hello.to_bytes())]

    def handle(self, frame: Frame) -> Sequence[FakeFrame]:
        if frame.kind is Kind.ACK:
            assert isinstance(parse(Kind.ACK, frame.metadata), Ack)
            self._session.set_program(PHASES, False)
        elif frame.kind is Kind.INPUT:
            self._shape = cast(Tensor, parse(Kind.INPUT, frame.metadata)).shape
        elif frame.kind is Kind.COMMAND:
            return self._partial()
        elif frame.kind is Kind.REDUCTION and self._session.state is State.LAST:
            return self._result(bytes(frame.payload))
        return []

    def _partial(self) -> Sequence[FakeFrame]:
        stage = self._session.phase_index
        phase = PHASES[stage]
        count = self._shape[0] * self._shape[1] * self._shape[2]
        first = 100.0 * self._rank + 10.0 * stage + self._bias
        payload = array("f", [first + index for index in range(count)]).tobytes()
        tensor = Tensor("<f4", phase, self._rank, self._shape, f"{phase}.partial")
        fence = Fence(phase, self._rank, None, 1)
        return [
            FakeFrame(Kind.PARTIAL, tensor.to_bytes(), payload),
            FakeFrame(Kind.FENCE, fence.to_bytes()),
        ]

    def _result(self, payload: bytes) -> Sequence[FakeFrame]:
        result = Result("<f4", "result", self._rank, self._shape, "y", None, 0)
        return [FakeFrame(Kind.RESULT, result.to_bytes(), payload)]


class FakePipe(Pipe):
    """The coordinator's end of a connection to a FakeWorker in memory."""

    def __init__(self, rank: int, tamper: Tamper | None = None, bias: float = 0.0) -> None:
        session = Session()
        self._rank = rank
        self._tamper = tamper
        self._worker = FakeWorker(rank, session, bias)
        self._connection = Connection(Side.WORKER, session, rank)
        self._waiting = b""
        self._sent = 0
        self._silent = False
        self._reply(self._worker.start())

    def send(self, buffers: list[Buffer], deadline: float) -> None:
        self._connection.receive_data(b"".join(buffers))
        while (frame := self._connection.next_frame()) is not None:
            self._reply(self._worker.handle(frame))

    def receive(self, limit: int, deadline: float) -> bytes:
        if not self._waiting and self._silent:
            raise DeadlineError("receive", "the fake rank is silent")
        piece, self._waiting = self._waiting[:limit], self._waiting[limit:]
        return piece

    def clock(self) -> float:
        return 0.0

    def close(self) -> None:
        """Nothing to let go of."""

    def fileno(self) -> int:
        return -1

    def _reply(self, frames: Sequence[FakeFrame]) -> None:
        for out in frames:
            buffers = self._connection.send(out.kind, out.metadata, out.payload, flags=out.flags)
            raw: bytes | None = b"".join(buffers)
            if self._tamper is not None:
                raw = self._tamper(self._rank, self._sent, b"".join(buffers))
            self._sent += 1
            self._silent = self._silent or raw is None
            if not self._silent:
                self._waiting += raw or b""


def record_run(manifest: RunManifest, files: RunFiles, tamper: Tamper | None = None) -> None:
    """Runs the block over fake ranks and writes the run's folder."""
    recorder = Recorder(keep_bytes=True)

    def connect(_: Recorder) -> tuple[Link, ...]:
        links = []
        for rank in range(manifest.ranks):
            connection = Connection(Side.COORDINATOR, Session(), rank, recorder)
            link = Link(connection, FakePipe(rank, tamper))
            hello = Hello(byte_order="little", dtype="<f4", rank=rank)
            link.receive(hello.to_bytes(), 0, deadline=1.0)
            links.append(link)
        return tuple(links)

    outcome = run_block(manifest, connect, recorder)
    files.write(MANIFEST, manifest.to_json_bytes())
    files.write(LEDGER, recorder.ledger())
    files.write(TAPE, recorder.tape())
    if outcome.output is not None:
        files.write(OUTPUT, outcome.output)
