"""Accepting ranks among strangers, over real sockets."""

from __future__ import annotations

import errno
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from coordinator.accept import PENDING_MAX, Accepted, Acceptor
from coordinator.processes import WorkerExit
from errors import ContractError, DeadlineError, PeerError, ProtocolError, TPError
from wire.address import Address
from wire.frame import Kind, encode
from wire.limits import HEADER, MAGIC, VERSION
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.socket_pipe import Listener, SocketPipe

# Far beyond what is waited for, for a machine that is busy with other things.
SLACK_S = 30.0
SOON_S = 0.3


def hello(rank: int, byte_order: str = "little", dtype: str = "<f4", **header: int) -> bytes:
    metadata = Hello(byte_order, dtype, rank).to_bytes()
    fields = {"epoch": 0, "sequence": 0} | header
    _, buffers = encode(Kind.HELLO, metadata=metadata, payload=b"", **fields)
    return b"".join(buffers)


def header(kind: int, version: int = VERSION, metadata: int = 0, payload: int = 0) -> bytes:
    return HEADER.pack(MAGIC, version, kind, 0, 0, 0, metadata, payload, 0)


def strange_hello(metadata: bytes) -> bytes:
    _, buffers = encode(Kind.HELLO, epoch=0, sequence=0, metadata=metadata, payload=b"")
    return b"".join(buffers)


STRANGERS = {
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "tls": bytes.fromhex("16030100f8010000f40303") + bytes(200),
    "random": bytes(range(255, 100, -1)),
    "other version": header(Kind.HELLO, version=VERSION + 1),
    "unknown kind": header(99),
    "4 GiB of metadata": header(Kind.HELLO, metadata=0xFFFF_FFFF),
    "4 GiB of payload": header(Kind.INPUT, payload=0xFFFF_FFFF),
    "payload on a HELLO": header(Kind.HELLO, payload=1),
    "16 MiB of another kind": header(Kind.INPUT, metadata=10, payload=16_777_216),
    "another kind": header(Kind.FENCE, metadata=10),
    "epoch": hello(0, epoch=1),
    "sequence": hello(0, sequence=1),
    "unknown key": strange_hello(b'{"byte_order":"little","dtype":"<f4","rank":0,"world":2}'),
    "rank is text": strange_hello(b'{"byte_order":"little","dtype":"<f4","rank":"0"}'),
    "not canonical": strange_hello(b'{"dtype":"<f4","byte_order":"little","rank":0}'),
    "checksum": hello(0)[:-1] + b"!",
}


class Meeting:
    """A listener with an acceptor, and peers that connect to it."""

    def __init__(self, address: Address, world_size: int) -> None:
        self.listener = Listener(address)
        self.recorder = Recorder()
        self.ended: list[WorkerExit] = []
        self.acceptor = Acceptor(self.listener, world_size, self.recorder, self._who_ended)
        self._peers: list[socket.socket] = []

    def peer(self, data: bytes = b"") -> socket.socket:
        """Connects and says `data`."""
        at = self.listener.address
        family = socket.AF_INET if at.path is None else socket.AF_UNIX
        peer = socket.socket(family, socket.SOCK_STREAM)
        self._peers.append(peer)
        peer.connect((at.host, at.port) if at.path is None else at.path)
        peer.settimeout(SLACK_S)
        peer.sendall(data)
        return peer

    def accept(self, seconds: float = SLACK_S) -> Accepted:
        return self.acceptor.accept(time.monotonic() + seconds)

    def refusal(self, seconds: float = SLACK_S) -> PeerError:
        with pytest.raises(PeerError) as refused:
            self.accept(seconds)
        return refused.value

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        self.listener.close()

    def _who_ended(self) -> Sequence[WorkerExit]:
        return self.ended


@pytest.fixture(params=["unix", "tcp"])
def address(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Address:
    # Paths of sockets are short when they are relative.
    monkeypatch.chdir(tmp_path)
    return Address("127.0.0.1", 0) if request.param == "tcp" else Address(path="s")


@pytest.fixture
def meeting(address: Address) -> Iterator[Meeting]:
    """For two ranks."""
    made = Meeting(address, 2)
    yield made
    made.close()


def close_all(accepted: Accepted) -> None:
    for link in accepted.links:
        link.close()


def is_closed(peer: socket.socket) -> bool:
    """Waits for the other side's end of the stream."""
    try:
        return peer.recv(1) == b""
    except ConnectionError:
        return True


def gone(rank: int) -> WorkerExit:
    return WorkerExit(rank, pid=1, status=1, killed=False, last_words="ImportError: no such thing")


def test_links_and_records_are_in_rank_order(meeting: Meeting) -> None:
    meeting.peer(hello(1))
    meeting.peer(hello(0))
    accepted = meeting.accept()
    assert [link.connection.rank for link in accepted.links] == [0, 1]
    assert accepted.strangers == 0
    entries = meeting.recorder.entries()
    assert [(entry.rank, entry.kind, entry.error) for entry in entries] == [
        (0, "HELLO", None),
        (1, "HELLO", None),
    ]
    close_all(accepted)


@pytest.mark.parametrize("said", STRANGERS.values(), ids=STRANGERS)
def test_a_stranger_is_closed_at_once_and_counted(meeting: Meeting, said: bytes) -> None:
    stranger = meeting.peer(said)
    accepted: list[Accepted] = []
    thread = threading.Thread(target=lambda: accepted.append(meeting.accept()))
    thread.start()
    # No rank has come yet: what closes the stranger is what it said.
    assert is_closed(stranger)
    for rank in range(2):
        meeting.peer(hello(rank))
    thread.join(SLACK_S)
    assert accepted[0].strangers == 1
    assert len(meeting.recorder.entries()) == 2
    close_all(accepted[0])


def test_a_silent_connection_delays_nobody(meeting: Meeting) -> None:
    silent = [meeting.peer(), meeting.peer(b"RK"), meeting.peer(hello(0)[:40])]
    meeting.peer().close()
    for rank in range(2):
        meeting.peer(hello(rank))
    accepted = meeting.accept()
    assert all(is_closed(peer) for peer in silent)
    assert accepted.strangers == 4
    close_all(accepted)


def test_more_silent_connections_than_are_kept(meeting: Meeting) -> None:
    accepted: list[Accepted] = []
    thread = threading.Thread(target=lambda: accepted.append(meeting.accept()))
    thread.start()
    silent = [meeting.peer() for _ in range(PENDING_MAX + 20)]
    # The oldest have to go while the ranks are still awaited, and only they.
    assert all(is_closed(peer) for peer in silent[:20])
    for rank in range(2):
        meeting.peer(hello(rank))
    thread.join(SLACK_S)
    assert accepted[0].strangers == len(silent)
    close_all(accepted[0])


def test_a_hello_in_single_bytes_is_a_hello(meeting: Meeting) -> None:
    meeting.peer(hello(1))
    slow = meeting.peer()
    accepted: list[Accepted] = []
    thread = threading.Thread(target=lambda: accepted.append(meeting.accept()))
    thread.start()
    for byte in hello(0):
        slow.sendall(bytes([byte]))
        time.sleep(0.001)
    thread.join(SLACK_S)
    assert accepted[0].strangers == 0
    close_all(accepted[0])


def test_bytes_that_trickle_in_extend_nothing(meeting: Meeting) -> None:
    """A whole HELLO would need far longer than the deadline."""
    meeting.peer(hello(1))
    slow = meeting.peer()
    over = threading.Event()

    def trickle() -> None:
        for byte in hello(0):
            if over.wait(SOON_S / 5):
                return
            slow.sendall(bytes([byte]))

    thread = threading.Thread(target=trickle)
    thread.start()
    began = time.monotonic()
    failure = meeting.refusal(SOON_S)
    assert SOON_S <= time.monotonic() - began < SLACK_S
    over.set()
    thread.join(SLACK_S)
    assert (failure.code, failure.rank, failure.phase) == ("deadline.handshake", 0, "hello")
    assert is_closed(slow)


@pytest.mark.parametrize(
    ("present", "missing"), [((), [0, 1, 2, 3]), ((0, 2), [1, 3]), ((3, 1, 0), [2])]
)
def test_the_deadline_names_the_missing_ranks(
    address: Address, present: tuple[int, ...], missing: list[int]
) -> None:
    meeting = Meeting(address, 4)
    peers = [meeting.peer(hello(rank)) for rank in present]
    failure = meeting.refusal(SOON_S)
    assert isinstance(failure, DeadlineError)
    assert (failure.code, failure.rank, failure.phase) == (
        "deadline.handshake",
        missing[0],
        "hello",
    )
    assert str(missing) in failure.message
    assert all(is_closed(peer) for peer in peers)
    (entry,) = meeting.recorder.entries()
    assert (entry.rank, entry.state, entry.error) == (missing[0], "NEW", "deadline.handshake")
    meeting.close()


REFUSED = {
    "out of range": hello(2),
    "far out of range": hello(2**53 - 1),
    "twice": hello(0),
    "byte order": hello(1, byte_order="big"),
    "dtype": hello(1, dtype="<f8"),
}


@pytest.mark.parametrize("said", REFUSED.values(), ids=REFUSED)
def test_a_worker_that_does_not_belong_here_ends_the_run(meeting: Meeting, said: bytes) -> None:
    peers = [meeting.peer(hello(0)), meeting.peer(said)]
    failure = meeting.refusal()
    assert isinstance(failure, ContractError)
    assert (failure.code, failure.phase) == ("contract.metadata", "hello")
    assert f'"rank":{failure.rank}'.encode() in said
    assert all(is_closed(peer) for peer in peers)


@pytest.mark.parametrize("ended", [[1], [0, 1]])
def test_a_process_that_ends_before_hello(meeting: Meeting, ended: list[int]) -> None:
    """Also when a lower rank, which has said HELLO, has ended too: that is noticed later."""
    meeting.peer(hello(0))
    meeting.ended = [gone(rank) for rank in ended]
    failure = meeting.refusal()
    assert isinstance(failure, ProtocolError)
    assert (failure.code, failure.rank, failure.phase) == ("protocol.closed", 1, "hello")
    assert "ImportError" in failure.message


def test_what_a_process_said_before_it_ended_is_read_first(meeting: Meeting) -> None:
    for rank in range(2):
        meeting.peer(hello(rank)).close()
    meeting.ended = [gone(0), gone(1)]
    accepted = meeting.accept()
    assert [link.connection.rank for link in accepted.links] == [0, 1]
    close_all(accepted)


def test_a_connection_that_is_gone_before_it_is_accepted(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, calls = meeting.listener.accept, []

    def flaky(deadline: float) -> SocketPipe:
        calls.append(deadline)
        if len(calls) == 1:
            # As when the kernel has nothing after all; then waiting is not for this call to do.
            assert deadline <= time.monotonic()
            raise DeadlineError("handshake", "nobody")
        return accept(deadline)

    monkeypatch.setattr(meeting.listener, "accept", flaky)
    for rank in range(2):
        meeting.peer(hello(rank))
    accepted = meeting.accept()
    assert (len(calls), accepted.strangers) == (3, 0)
    close_all(accepted)


def test_without_descriptors_silent_connections_are_spared_first(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept, calls = meeting.listener.accept, []

    def scarce(deadline: float) -> SocketPipe:
        calls.append(deadline)
        if len(calls) == 2:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return accept(deadline)

    monkeypatch.setattr(meeting.listener, "accept", scarce)
    silent = meeting.peer()
    for rank in range(2):
        meeting.peer(hello(rank))
    accepted = meeting.accept()
    assert accepted.strangers == 1
    assert is_closed(silent)
    close_all(accepted)


def test_without_any_descriptor_the_run_ends_in_one_sentence(
    meeting: Meeting, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(deadline: float) -> SocketPipe:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(meeting.listener, "accept", none)
    meeting.peer()
    with pytest.raises(TPError) as failure:
        meeting.accept()
    assert failure.value.code == "process.resources"
