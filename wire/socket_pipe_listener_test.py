"""Listening and connecting: which addresses, how long, and what is left behind."""

from __future__ import annotations

import errno
import socket
import time
from pathlib import Path

import pytest

from errors import ConfigError, DeadlineError
from wire.address import Address, parse_address
from wire.meanwhile import meanwhile
from wire.socket_pipe import Listener, SocketPipe, _try_connect, connect

SOON = 0.2
# Far beyond every deadline here, for a machine that is busy with other things.
SLACK = 20.0
FAMILIES = ["unix", "tcp"]


def at(seconds: float) -> float:
    return time.monotonic() + seconds


def listen(family: str) -> Listener:
    """In the current directory, which the fixture makes a fresh one: a relative path is short."""
    return Listener(Address(path="s") if family == "unix" else Address("127.0.0.1", 0))


@pytest.fixture(autouse=True)
def _fresh_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class TestListener:
    """Where a coordinator may listen, and what it leaves behind."""

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "10.0.0.1", "fe80::1"])
    def test_only_loopback(self, host: str) -> None:
        with pytest.raises(ConfigError) as refused:
            Listener(Address(host, 0))
        assert refused.value.problems[0].field == "listen"

    @pytest.mark.parametrize("family", FAMILIES)
    def test_an_address_in_use_is_refused(self, family: str) -> None:
        first = listen(family)
        with pytest.raises(ConfigError) as refused:
            Listener(first.address)
        assert "in use" in refused.value.problems[0].rule
        connect(first.address, at(SLACK)).close()
        first.accept(at(SLACK)).close()
        first.close()

    def test_a_path_that_is_there_is_never_replaced(self) -> None:
        Path("s").write_text("someone's")
        with pytest.raises(ConfigError):
            listen("unix")
        assert Path("s").read_text() == "someone's"

    def test_a_path_that_cannot_be_made_is_refused(self) -> None:
        with pytest.raises(ConfigError):
            Listener(Address(path="no/such/directory/s"))

    @pytest.mark.parametrize("family", FAMILIES)
    def test_an_address_is_free_again_after_close(self, family: str) -> None:
        first = listen(family)
        address = first.address
        client = connect(address, at(SLACK))
        server = first.accept(at(SLACK))
        server.close()
        client.close()
        first.close()
        first.close()
        Listener(address).close()

    def test_the_path_is_private_and_removed(self) -> None:
        listener = listen("unix")
        assert Path("s").stat().st_mode & 0o777 == 0o600
        listener.close()
        assert not Path("s").exists()

    def test_a_path_that_someone_else_took_over_is_left_alone(self) -> None:
        listener = listen("unix")
        Path("s").unlink()
        Path("s").write_text("another's")
        listener.close()
        assert Path("s").read_text() == "another's"

    def test_the_longest_path_works(self) -> None:
        listener = Listener(parse_address("unix:" + "p" * 107, "listen"))
        connect(listener.address, at(SLACK)).close()
        listener.close()

    def test_the_port_is_told(self) -> None:
        listener = listen("tcp")
        assert listener.port > 0
        assert str(listener.address) == f"tcp:127.0.0.1:{listener.port}"
        listener.close()

    @pytest.mark.parametrize("family", FAMILIES)
    def test_accept_ends_at_its_deadline(self, family: str) -> None:
        listener = listen(family)
        with pytest.raises(DeadlineError) as late:
            listener.accept(at(0.05))
        assert late.value.code == "deadline.handshake"
        listener.close()

    @pytest.mark.parametrize("family", FAMILIES)
    def test_accept_waits_for_a_connection(self, family: str) -> None:
        listener = listen(family)
        made: list[SocketPipe] = []
        with meanwhile(lambda: made.append(connect(listener.address, at(SLACK)))):
            listener.accept(at(SLACK)).close()
        made[0].close()
        listener.close()


class TestConnect:
    """Patience until the deadline, and no longer."""

    def test_it_waits_for_a_listener(self) -> None:
        made: list[Listener] = []

        def later() -> None:
            time.sleep(0.1)
            made.append(listen("unix"))

        with meanwhile(later):
            connect(Address(path="s"), at(SLACK)).close()
        made[0].close()

    @pytest.mark.parametrize("family", FAMILIES)
    def test_without_a_listener_it_ends_at_the_deadline(self, family: str) -> None:
        listener = listen(family)
        address = listener.address
        listener.close()
        began = time.monotonic()
        with pytest.raises(DeadlineError) as late:
            connect(address, at(SOON))
        assert late.value.code == "deadline.handshake"
        assert SOON <= time.monotonic() - began < SLACK

    def test_a_full_backlog_is_waited_for(self) -> None:
        listening = socket.socket(socket.AF_UNIX)
        listening.bind("s")
        listening.listen(0)
        waiting = [connect(Address(path="s"), at(SLACK))]
        with pytest.raises(DeadlineError):
            waiting.extend(connect(Address(path="s"), at(SOON)) for _ in range(10))
        for pipe in waiting:
            pipe.close()
        listening.close()

    def test_a_port_that_connects_to_itself_is_nobody(self) -> None:
        """TCP's simultaneous open, made certain by binding the port that is then connected to."""
        with socket.socket() as stream:
            stream.bind(("127.0.0.1", 0))
            address = Address("127.0.0.1", stream.getsockname()[1])
            assert _try_connect(stream, address, at(SLACK)) == errno.ECONNREFUSED

    def test_port_0_is_refused(self) -> None:
        with pytest.raises(ConfigError):
            connect(Address("127.0.0.1", 0), at(SLACK))

    def test_a_file_that_is_no_socket_is_not_waited_for_beyond_the_deadline(self) -> None:
        Path("s").write_text("no socket")
        with pytest.raises(DeadlineError):
            connect(Address(path="s"), at(0.05))

    def test_a_path_through_a_file_is_refused_at_once(self) -> None:
        Path("f").write_text("no directory")
        with pytest.raises(ConfigError) as refused:
            connect(Address(path="f/s"), at(SLACK))
        assert refused.value.problems[0].field == "connect"
