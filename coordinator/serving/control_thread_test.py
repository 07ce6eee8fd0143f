"""The control socket beside HTTP: who is heard when, how it ends, and a mistake of ours in it."""

from __future__ import annotations

import json
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.process_table import wait_until
from coordinator.service import ControlService
from coordinator.serving.control_thread import ControlThread
from coordinator.serving.fake_group import Watched
from coordinator.serving.served import Phase
from errors import MisuseError
from wire.address import Address
from wire.socket_pipe import Listener


class Beside:
    """A control socket beside a backend over fake ranks."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "s"
        self.watched = Watched()
        self.crashed = threading.Event()
        listener = Listener(Address(path=str(self.path)))
        self.control = ControlThread(listener, self.watched.backend, self.crashed.set)

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(20.0)
        client.connect(str(self.path))
        return client

    def serve(self) -> None:
        self.watched.backend.start()
        self.watched.reach(Phase.SERVING)
        self.control.start()


@pytest.fixture
def beside() -> Iterator[Beside]:
    with tempfile.TemporaryDirectory() as name:
        made = Beside(Path(name))
        yield made
        made.watched.end()
        made.control.close()
        assert not made.path.exists()


def said(client: socket.socket, **command: object) -> dict[str, object]:
    client.sendall(json.dumps(command).encode("ascii") + b"\n")
    return heard(client)


def heard(client: socket.socket) -> dict[str, object]:
    line = b""
    while not line.endswith(b"\n"):
        byte = client.recv(1)
        assert byte, line
        line += byte
    event = json.loads(line)
    assert isinstance(event, dict)
    return event


def test_who_comes_before_the_load_is_answered_after_it(beside: Beside) -> None:
    with beside.connect() as client:
        client.sendall(b'{"op":"state"}\n')
        beside.serve()
        beside.control.start()
        assert heard(client)["event"] == "state"
        given = {"prompt_token_ids": [1, 2], "max_tokens": 2}
        assert said(client, op="submit", tag="t", parameters=given)["event"] == "accepted"
        assert [heard(client)["event"] for _ in range(3)] == ["token", "token", "finished"]


def test_the_end(beside: Beside) -> None:
    """Newcomers are refused first; who is there hears the rest, and is not waited for."""
    beside.serve()
    with beside.connect() as client:
        assert said(client, op="state")["event"] == "state"
        beside.control.refuse_newcomers()
        assert wait_until(lambda: not beside.path.exists())
        beside.watched.backend.stop(time.monotonic())
        given = {"prompt_token_ids": [1, 2], "max_tokens": 2}
        refused = said(client, op="submit", tag="t", parameters=given)
        assert refused["event"] == "refused"
        beside.watched.reach(Phase.ENDED)
        beside.control.close()
        assert client.recv(1) == b""


def test_nothing_was_ever_served(beside: Beside) -> None:
    beside.control.close()
    beside.control.close()
    assert not beside.crashed.is_set()


def test_a_mistake_of_ours(beside: Beside, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistake(service: ControlService, deadline: float) -> None:
        raise MisuseError("planted")

    monkeypatch.setattr(ControlService, "pump", mistake)
    beside.serve()
    assert beside.crashed.wait(20.0)
    assert isinstance(beside.control.crash, MisuseError)
