"""The daemon: its command line, one session over a real socket, exit codes and last words."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from errors import ConfigError, NumericsError
from program.digest import program_digest
from wire.address import parse_address
from wire.connection import Connection
from wire.frame import Kind, Side
from wire.link import Link
from wire.metadata import Ack, Command, Hello, Load, Tensor
from wire.session import Session
from wire.socket_pipe import Listener
from worker import main as subject
from worker.main import WorkerOptions, main, worker_options
from worker.toy_program import HIDDEN_SIZE, ToyExecutor, ToyPrograms, wire_spec

SLACK_S = 30.0
RANK, WORLD_SIZE = 1, 2
ADDRESS = "unix:s"


class Coordinator:
    """The coordinator's end of a session with whoever connects to this listener."""

    def __init__(self, listener: Listener) -> None:
        pipe = listener.accept(self.soon())
        session, spec = Session(), wire_spec(WORLD_SIZE)
        session.set_program(spec.phases, spec.folded)
        session.adopt_epoch(3)
        self.link = Link(Connection(Side.COORDINATOR, session, RANK), pipe)
        hello = Hello("little", "<f4", RANK).to_bytes()
        self.link.receive(hello, 0, deadline=self.soon())

    def soon(self) -> float:
        return time.monotonic() + SLACK_S

    def send(self, kind: Kind, metadata: bytes, payload: bytes = b"") -> None:
        self.link.send(kind, metadata, payload, deadline=self.soon())

    def acknowledge(self) -> None:
        spec = wire_spec(WORLD_SIZE)
        ack = Ack(
            parameters={},
            program=spec.name,
            program_digest=program_digest(spec),
            rank=RANK,
            world_size=WORLD_SIZE,
        )
        self.send(Kind.ACK, ack.to_bytes())

    def load(self) -> None:
        spec = wire_spec(WORLD_SIZE)
        for weight in spec.weights:
            shape = weight.local_shape(RANK, WORLD_SIZE)
            tensor = Tensor("<f4", "load", RANK, shape, weight.name)
            self.send(Kind.WEIGHT, tensor.to_bytes(), bytes(tensor.payload_bytes))

    def step(self) -> None:
        """One whole step, read to its RESULT."""
        shape = (1, 2, HIDDEN_SIZE)
        size = 4 * 2 * HIDDEN_SIZE
        operand = Tensor("<f4", "input", RANK, shape, "x")
        self.send(Kind.INPUT, operand.to_bytes(), bytes(size))
        for phase in ("one", "two"):
            self.command(phase)
            for _ in range(2):
                self.link.receive(deadline=self.soon())
            total = Tensor("<f4", phase, RANK, shape, f"{phase}.total")
            self.send(Kind.REDUCTION, total.to_bytes(), bytes(size))
        assert self.link.receive(deadline=self.soon()).kind is Kind.RESULT

    def command(self, phase: str) -> None:
        self.send(Kind.COMMAND, Command(phase, None, RANK, 0).to_bytes())

    def begin(self) -> None:
        """All that makes a worker compute its first stage."""
        self.acknowledge()
        self.load()
        operand = Tensor("<f4", "input", RANK, (1, 1, HIDDEN_SIZE), "x")
        self.send(Kind.INPUT, operand.to_bytes(), bytes(4 * HIDDEN_SIZE))
        self.command("one")


class Daemon(Coordinator):
    """A worker's main in a thread, and the coordinator that it connects to."""

    def __init__(self, programs: ToyPrograms, *extra: str) -> None:
        self.programs = programs
        self.code: int | None = None
        argv = ["--connect", ADDRESS, "--rank", str(RANK), *extra]
        self._listener = Listener(parse_address(ADDRESS))
        self._thread = threading.Thread(target=lambda: self._run(argv))
        self._thread.start()
        super().__init__(self._listener)

    def end(self) -> int | None:
        """Close the connection and wait for the worker."""
        self.link.close()
        return self.wait()

    def wait(self) -> int | None:
        self._thread.join(SLACK_S)
        self.link.close()
        self._listener.close()
        assert not self._thread.is_alive()
        return self.code

    def _run(self, argv: list[str]) -> None:
        self.code = main(argv)


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ToyPrograms:
    """The worker's programs are toys, and its socket has a short path."""
    monkeypatch.chdir(tmp_path)
    toys = ToyPrograms()
    monkeypatch.setattr(subject, "open_program", toys)
    return toys


Capture = pytest.CaptureFixture[str]


def test_a_session_to_its_clean_end(programs: ToyPrograms, capsys: Capture) -> None:
    daemon = Daemon(programs)
    daemon.acknowledge()
    daemon.load()
    daemon.step()
    assert daemon.end() == 0
    assert capsys.readouterr() == ("", "")
    assert programs.opened[RANK].journal[-1] == ("finish",)


def one_sentence(capsys: Capture, code: str) -> None:
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"worker of rank {RANK}: {code}: ")
    assert err.count("\n") == 1


def test_the_coordinator_leaves_before_it_said_anything(
    programs: ToyPrograms, capsys: Capture
) -> None:
    assert Daemon(programs).end() == 3
    one_sentence(capsys, "protocol.closed")


def test_the_coordinator_leaves_while_it_loads(programs: ToyPrograms, capsys: Capture) -> None:
    daemon = Daemon(programs)
    daemon.acknowledge()
    assert daemon.end() == 3
    one_sentence(capsys, "protocol.closed")


def test_the_coordinator_leaves_within_a_frame(programs: ToyPrograms, capsys: Capture) -> None:
    daemon = Daemon(programs)
    daemon.link.pipe.send([b"RKPF\x01"], daemon.soon())
    assert daemon.end() == 3
    one_sentence(capsys, "protocol.truncated")


def test_what_is_not_a_frame(programs: ToyPrograms, capsys: Capture) -> None:
    daemon = Daemon(programs)
    daemon.link.pipe.send([b"HTTP/1.1 400 Bad Request\r\n\r\n"], daemon.soon())
    assert daemon.wait() == 3
    one_sentence(capsys, "protocol.magic")


def test_what_was_not_agreed(programs: ToyPrograms, capsys: Capture) -> None:
    daemon = Daemon(programs)
    daemon.acknowledge()
    daemon.load()
    daemon.send(Kind.LOAD, Load({}, "load", RANK).to_bytes())
    assert daemon.wait() == 3
    one_sentence(capsys, "contract.kind")


def test_a_coordinator_that_says_nothing(programs: ToyPrograms, capsys: Capture) -> None:
    """Not for ever: a connection without an end, to a machine that is not there any more."""
    daemon = Daemon(programs, "--idle-ms", "200")
    assert daemon.wait() == 3
    one_sentence(capsys, "deadline.handshake")


# A worker whose stage never ends; it has no next read at which it could notice anything.
ENDLESS = """
import sys
from worker import main
from worker.toy_program import ToyExecutor, ToyPrograms

def partial(executor, stage):
    print("computing", flush=True)
    while True:
        sum(range(1000))

ToyExecutor.partial = partial
main.open_program = ToyPrograms()
sys.exit(main.main(sys.argv[1:]))
"""


def test_a_computing_worker_does_not_outlive_its_coordinator() -> None:
    """Docs say 5 s; the rest is for a machine that is busy with other things."""
    listener = Listener(parse_address(ADDRESS))
    command = [sys.executable, "-c", ENDLESS, "--connect", ADDRESS, "--rank", str(RANK)]
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONSAFEPATH": "1"}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            coordinator = Coordinator(listener)
            coordinator.begin()
            assert process.stdout is not None
            assert process.stdout.readline() == "computing\n"
            coordinator.link.close()
            since = time.monotonic()
            _, said = process.communicate(timeout=SLACK_S)
        finally:
            process.kill()
            listener.close()
    assert time.monotonic() - since < 5.0 + 5.0
    assert process.returncode == 3
    assert said.startswith("worker: ")
    assert said.count("\n") == 1


def test_numbers_that_are_not_finite(
    programs: ToyPrograms, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def partial(self: ToyExecutor, stage: int) -> bytes:
        raise NumericsError("element 3 of the partial is nan")

    monkeypatch.setattr(ToyExecutor, "partial", partial)
    daemon = Daemon(programs)
    daemon.begin()
    assert daemon.wait() == 3
    one_sentence(capsys, "numerics.not_finite")


def test_nobody_listens(capsys: Capture) -> None:
    argv = ["--connect", ADDRESS, "--rank", str(RANK), "--connect-ms", "100"]
    assert main(argv) == 3
    one_sentence(capsys, "deadline.handshake")


def test_an_address_that_can_never_work(capsys: Capture) -> None:
    assert main(["--connect", "127.0.0.1:0", "--rank", str(RANK)]) == 2
    one_sentence(capsys, "config.invalid")


def test_interrupted(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    def interrupted(options: WorkerOptions, wrap: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subject, "run", interrupted)
    assert main(["--connect", ADDRESS, "--rank", "0"]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_bug_of_ours_crashes(monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(options: WorkerOptions, wrap: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(subject, "run", buggy)
    with pytest.raises(ZeroDivisionError):
        main(["--connect", ADDRESS, "--rank", "0"])


def test_the_defaults() -> None:
    options = worker_options(["--connect", "127.0.0.1:7400", "--rank", "63"])
    assert options == WorkerOptions("127.0.0.1:7400", 63, 10_000, 600_000, 10_000)


def test_every_option() -> None:
    flags = ["--connect-ms", "1", "--idle-ms", "2", "--send-ms", "86400000"]
    options = worker_options(["--rank", "0", *flags, "--connect", ADDRESS])
    assert options == WorkerOptions(ADDRESS, 0, 1, 2, 86_400_000)


MISTAKES = {
    "nothing": [],
    "no rank": ["--connect", ADDRESS],
    "no address": ["--rank", "0"],
    "rank 64": ["--connect", ADDRESS, "--rank", "64"],
    "rank -1": ["--connect", ADDRESS, "--rank", "-1"],
    "rank 1_0": ["--connect", ADDRESS, "--rank", "1_0"],
    "rank ' 1'": ["--connect", ADDRESS, "--rank", " 1"],
    "rank \u0661": ["--connect", ADDRESS, "--rank", "\u0661"],
    "rank of many digits": ["--connect", ADDRESS, "--rank", "9" * 5000],
    "rank twice": ["--connect", ADDRESS, "--rank", "0", "--rank", "0"],
    "a deadline of 0": ["--connect", ADDRESS, "--rank", "0", "--idle-ms", "0"],
    "more than a day": ["--connect", ADDRESS, "--rank", "0", "--send-ms", "86400001"],
    "an abbreviation": ["--conn", ADDRESS, "--rank", "0"],
    "an unknown option": ["--connect", ADDRESS, "--rank", "0", "--fault", "delay"],
    "an argument": ["--connect", ADDRESS, "--rank", "0", "more"],
}


@pytest.mark.parametrize("argv", MISTAKES.values(), ids=MISTAKES)
def test_mistakes(argv: list[str], capsys: Capture) -> None:
    with pytest.raises(ConfigError):
        worker_options(argv)
    assert main(argv) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("worker: config.invalid: ")
    assert err.count("\n") == 1


def test_all_problems_are_named_together() -> None:
    flags = ["--rank", "64", "--connect-ms", "0", "--idle-ms", "0", "--send-ms", "0"]
    with pytest.raises(ConfigError) as refused:
        worker_options(["--connect", ADDRESS, *flags])
    fields = [problem.field for problem in refused.value.problems]
    assert sorted(fields) == ["--connect-ms", "--idle-ms", "--rank", "--send-ms"]


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_what_is_only_printed(flag: str, capsys: Capture) -> None:
    with pytest.raises(SystemExit) as ended:
        main([flag])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("worker " if flag == "--version" else "usage: worker")
