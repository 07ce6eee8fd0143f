"""The control socket over real Unix sockets, with an engine over fake ranks."""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from coordinator.engine import Engine
from coordinator.engine_inbox import Inbox
from coordinator.fake_ranks import LIMITS, FakeClock, FakeRanks
from coordinator.process_table import wait_until
from coordinator.scheduler import Scheduler
from coordinator.service import CLIENTS_MAX, ControlService
from coordinator.wake import Wake
from wire.address import Address
from wire.socket_pipe import Listener

ANSWER_S = 30.0


class WakingRanks(FakeRanks):
    """Idle until the engine is wanted, as real ranks are."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.wanted = threading.Event()

    def wait(self, deadline: float) -> None:
        self.wanted.wait(0.5)
        self.wanted.clear()


class Running:
    """A service whose two threads run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ranks = WakingRanks()
        self.inbox = Inbox(64, self.ranks.wanted.set)
        scheduler = Scheduler(LIMITS, step_tokens=8, waiting_max=64)
        self.engine = Engine(
            self.ranks, scheduler, self.inbox, heartbeat_s=1e9, clock=time.monotonic
        )
        self.wake = Wake()
        listener = Listener(Address(path=str(path)))
        self.service = ControlService(
            listener, self.inbox, LIMITS, lambda: self.engine.snapshot, self.wake
        )
        self._threads = [
            threading.Thread(target=self.engine.run),
            threading.Thread(target=self._pump),
        ]
        for thread in self._threads:
            thread.start()

    def _pump(self) -> None:
        while not self.engine.done:
            self.service.pump(time.monotonic() + 0.5)
        self.service.flush(time.monotonic() + 1.0)

    def stop(self) -> None:
        self.inbox.stop(time.monotonic())
        self.wake.set()
        for thread in self._threads:
            thread.join(ANSWER_S)
        self.service.close()
        self.wake.close()


class Talker:
    """A client that blocks."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(ANSWER_S)
        self.socket.connect(str(path))
        self._file = self.socket.makefile("rb")

    def say(self, **command: object) -> None:
        self.socket.sendall(json.dumps(command).encode("ascii") + b"\n")

    def submit(self, max_tokens: int = 2) -> int:
        given = {"prompt_token_ids": [1, 2], "max_tokens": max_tokens}
        self.say(op="submit", tag="t", parameters=given)
        return int(self.hear()["request_id"])

    def hear(self) -> Any:
        """The next event; None at the end."""
        line = self._file.readline()
        return json.loads(line) if line else None

    def close(self) -> None:
        self._file.close()
        self.socket.close()


@pytest.fixture
def home() -> Iterator[Path]:
    """Not as deep as a test's own folder, because of the paths of sockets."""
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


@pytest.fixture
def running(home: Path) -> Iterator[Running]:
    service = Running(home / "s")
    yield service
    service.stop()


def test_requests_of_several_clients(running: Running) -> None:
    talkers = [Talker(running.path) for _ in range(4)]
    ids = [talker.submit(max_tokens=3) for talker in talkers]
    assert len(set(ids)) == 4
    for talker, request_id in zip(talkers, ids, strict=True):
        events = [talker.hear() for _ in range(4)]
        assert [event["event"] for event in events] == ["token"] * 3 + ["finished"]
        assert {event["request_id"] for event in events} == {request_id}
        talker.close()


def test_only_its_owner_reaches_the_socket(running: Running) -> None:
    mode = running.path.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


@pytest.mark.parametrize("way", ["close", "reset", "half"])
def test_a_client_that_leaves_ends_its_requests(running: Running, way: str) -> None:
    running.ranks.during = lambda plan: time.sleep(0.01)
    talker = Talker(running.path)
    talker.submit(max_tokens=60)
    talker.hear()
    if way == "half":
        talker.socket.shutdown(socket.SHUT_WR)
    elif way == "reset":
        os.close(talker.socket.detach())
    else:
        talker.close()
    assert wait_until(lambda: running.ranks.table.residents == ())
    assert wait_until(lambda: running.engine.snapshot.scheduler.states == ())
    talker.close()
    other = Talker(running.path)
    other.submit(max_tokens=1)
    assert other.hear()["event"] == "token"
    other.close()


def test_a_client_that_never_reads_is_gone(running: Running) -> None:
    """Its answers are kept up to a bound; the others are served meanwhile."""
    deaf, other = Talker(running.path), Talker(running.path)
    questions = b'{"op":"state"}\n' * 400_000
    with pytest.raises(ConnectionError):
        deaf.socket.sendall(questions)
    other.submit(max_tokens=1)
    assert other.hear()["event"] == "token"
    deaf.close()
    other.close()


def test_more_clients_than_are_served_wait(running: Running) -> None:
    talkers = [Talker(running.path) for _ in range(CLIENTS_MAX)]
    for talker in talkers:
        talker.say(op="state")
        assert talker.hear()["event"] == "state"
    late = Talker(running.path)
    late.say(op="state")
    late.socket.settimeout(0.2)
    with pytest.raises(TimeoutError):
        late.socket.recv(1)
    late.socket.settimeout(ANSWER_S)
    talkers.pop().close()
    assert late.socket.recv(5) == b'{"eve'
    for talker in (*talkers, late):
        talker.close()


def test_the_end_of_the_service_is_the_end_of_the_stream(home: Path) -> None:
    service = Running(home / "s")
    talker = Talker(service.path)
    request_id = talker.submit(max_tokens=60)
    service.stop()
    events = []
    while (event := talker.hear()) is not None:
        events.append(event)
    assert events[-1]["event"] == "finished"
    assert events[-1]["request_id"] == request_id
    assert not service.path.exists()
    talker.close()


def test_waiting_costs_nothing(running: Running) -> None:
    talker = Talker(running.path)
    before = time.process_time()
    time.sleep(0.5)
    assert time.process_time() - before < 0.25
    talker.close()
