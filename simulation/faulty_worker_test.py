"""The worker that can have a fault: its command line, and the pipe between it and its session."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator, Sequence

import pytest

from simulation import faulty_worker as subject
from simulation.faults import Fault, FaultInjector, FaultKind, RankEnded
from simulation.faulty_worker import RANK_ENDED_STATUS, FaultyPipe, PipeTarget, main
from wire.frame import Kind, encode
from wire.link import Pipe
from wire.metadata import Tensor
from wire.socket_pipe import SocketPipe
from worker.main import PipeWrapper, WorkerOptions

SLACK_S = 30.0
OPTIONS = ("--connect", "unix:s", "--rank", "1")
FAULT = ("--fault", "delay", "--fault-rank", "1", "--fault-phase", "mlp", "--ranks", "2")


@pytest.fixture
def ends() -> Iterator[tuple[SocketPipe, socket.socket]]:
    """A pipe, and the socket at its other end."""
    near, far = socket.socketpair()
    far.settimeout(SLACK_S)
    pipe = SocketPipe(near)
    yield pipe, far
    pipe.close()
    far.close()


def partial(phase: str) -> bytes:
    metadata = Tensor("<f4", phase, 1, (1, 1), f"{phase}.partial").to_bytes()
    _, buffers = encode(Kind.PARTIAL, epoch=1, sequence=1, metadata=metadata, payload=bytes(4))
    return b"".join(buffers)


def soon() -> float:
    return time.monotonic() + SLACK_S


def test_everything_but_the_struck_frame_passes(ends: tuple[SocketPipe, socket.socket]) -> None:
    pipe, far = ends
    faulty = FaultyPipe(pipe, FaultInjector(Fault(FaultKind.RANK_EXIT, "mlp", 2), PipeTarget(pipe)))
    faulty.send([partial("attention")], soon())
    assert far.recv(1 << 16) == partial("attention")
    with pytest.raises(RankEnded):
        faulty.send([partial("mlp")], soon())
    far.sendall(b"abcdef")
    assert faulty.receive(3, soon()) == b"abc"
    space = memoryview(bytearray(8))
    assert faulty.receive_into(space, soon()) == 3
    assert bytes(space[:3]) == b"def"
    assert faulty.fileno() == pipe.fileno()
    assert abs(faulty.clock() - time.monotonic()) < SLACK_S
    faulty.close()
    assert far.recv(1) == b""


def test_a_delayed_frame_waits_for_the_coordinators_end(
    ends: tuple[SocketPipe, socket.socket],
) -> None:
    """What the coordinator still says meanwhile is read and forgotten."""
    pipe, far = ends
    faulty = FaultyPipe(pipe, FaultInjector(Fault(FaultKind.DELAY, "mlp", 2), PipeTarget(pipe)))
    ended = threading.Event()

    def worker() -> None:
        with pytest.raises(RankEnded):
            faulty.send([partial("mlp")], soon())
        ended.set()

    thread = threading.Thread(target=worker)
    thread.start()
    far.sendall(b"something else")
    assert not ended.wait(0.1)
    far.shutdown(socket.SHUT_WR)
    assert ended.wait(SLACK_S)
    thread.join(SLACK_S)
    assert far.recv(1 << 16) == partial("mlp")


class FakeMain:
    """Takes the place of the real worker's main."""

    def __init__(self, ends_by: BaseException | None = None) -> None:
        self.argv: Sequence[str] = ()
        self.wrapped: dict[int, bool] = {}
        self._ends_by = ends_by

    def __call__(self, argv: Sequence[str], wrap: PipeWrapper) -> int:
        self.argv = argv
        for rank in range(3):
            near, far = socket.socketpair()
            pipe: Pipe = SocketPipe(near)
            self.wrapped[rank] = wrap(pipe, WorkerOptions("unix:s", rank, 1, 1, 1)) is not pipe
            pipe.close()
            far.close()
        if self._ends_by is not None:
            raise self._ends_by
        return 7


def test_only_the_faulty_rank_has_the_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeMain()
    monkeypatch.setattr(subject, "worker_main", fake)
    assert main([*OPTIONS, *FAULT, "--idle-ms", "9"]) == 7
    assert fake.wrapped == {0: False, 1: True, 2: False}
    # What is not of the fault is the worker's to judge.
    assert list(fake.argv) == [*OPTIONS, "--idle-ms", "9"]


def test_a_rank_that_ended_has_a_status_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject, "worker_main", FakeMain(RankEnded("delay")))
    assert main([*OPTIONS, *FAULT]) == RANK_ENDED_STATUS


@pytest.mark.parametrize(
    "argv",
    [
        OPTIONS,
        (*OPTIONS, *FAULT[2:]),
        (*OPTIONS, "--fault", "flood", *FAULT[2:]),
        (*OPTIONS, *FAULT[:2], "--fault-rank", "one", *FAULT[4:]),
    ],
)
def test_a_wrong_command_line(argv: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2


def test_what_the_real_worker_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*OPTIONS, "--no-such", "x", *FAULT]) == 2
    assert capsys.readouterr().err.startswith("worker: config.")
