"""Pipes over real sockets: Unix and TCP, tiny buffers, resets and deadlines."""

from __future__ import annotations

import errno
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from errors import DeadlineError, MisuseError
from wire.address import Address
from wire.connection import Connection
from wire.frame import Kind, Side, encode
from wire.limits import PAYLOAD_BYTES_MAX
from wire.link import Link
from wire.meanwhile import meanwhile
from wire.metadata import Hello
from wire.session import Session
from wire.socket_pipe import Listener, connect, wait_readable

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


class Pair:
    """A pipe and the raw socket at its other end."""

    def __init__(self, family: str, buffer_bytes: int | None = None) -> None:
        listener = listen(family)
        self.pipe = connect(listener.address, at(SLACK))
        accepted = listener.accept(at(SLACK))
        self.far = socket.socket(fileno=os.dup(accepted.fileno()))
        accepted.close()
        listener.close()
        self.far.settimeout(SLACK)
        if buffer_bytes is not None:
            near = socket.socket(fileno=os.dup(self.pipe.fileno()))
            for end in (near, self.far):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer_bytes)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)
            near.close()

    def reset(self) -> None:
        """Close the far end without a goodbye."""
        if self.far.family != socket.AF_UNIX:
            self.far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.far.close()

    def close(self) -> None:
        self.pipe.close()
        self.far.close()


@pytest.fixture(params=FAMILIES)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    made = Pair(request.param)
    yield made
    made.close()


def drain(stream: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        received += stream.recv(min(size - len(received), 65_536))
    return bytes(received)


def test_bytes_go_both_ways(pair: Pair) -> None:
    pair.pipe.send([b"ab", memoryview(b"cd"), bytearray(b"e")], at(SLACK))
    assert drain(pair.far, 5) == b"abcde"
    pair.far.sendall(b"answer")
    assert pair.pipe.receive(3, at(SLACK)) == b"ans"
    space = memoryview(bytearray(8))
    assert pair.pipe.receive_into(space, at(SLACK)) == 3
    assert bytes(space[:3]) == b"wer"


def test_more_buffers_than_one_call_takes(pair: Pair) -> None:
    with meanwhile(lambda: pair.pipe.send([b"ab"] * 3000, at(SLACK))):
        assert drain(pair.far, 6000) == b"ab" * 3000


def test_receive_waits_for_bytes(pair: Pair) -> None:
    def later() -> None:
        time.sleep(0.05)
        pair.far.sendall(b"x")

    with meanwhile(later):
        assert pair.pipe.receive(10, at(SLACK)) == b"x"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_frame_through_the_smallest_buffers(family: str) -> None:
    """The kernel's least: every write and every read is partial."""
    pair = Pair(family, buffer_bytes=1)
    payload = bytes(range(256)) * 128
    _, buffers = encode(Kind.INPUT, epoch=1, sequence=0, metadata=b"{}", payload=payload)
    whole = b"".join(buffers)
    received = bytearray()

    def read() -> None:
        received.extend(drain(pair.far, len(whole)))
        pair.far.sendall(received)

    with meanwhile(read):
        pair.pipe.send(buffers, at(SLACK))
        back = memoryview(bytearray(len(whole)))
        filled = 0
        while filled < len(whole):
            filled += pair.pipe.receive_into(back[filled:], at(SLACK))
    assert bytes(back) == whole == bytes(received)
    pair.close()


def test_sixteen_mebibytes(pair: Pair) -> None:
    payload = os.urandom(1024) * (PAYLOAD_BYTES_MAX // 1024)
    received: list[bytes] = []
    with meanwhile(lambda: received.append(drain(pair.far, len(payload)))):
        pair.pipe.send([payload], at(SLACK))
    assert received == [payload]


def test_the_end_of_the_stream(pair: Pair) -> None:
    pair.far.sendall(b"last")
    pair.far.close()
    assert pair.pipe.receive(100, at(SLACK)) == b"last"
    for _ in range(2):
        assert pair.pipe.receive(100, at(SLACK)) == b""
        assert pair.pipe.receive_into(memoryview(bytearray(9)), at(SLACK)) == 0
    assert pair.pipe.broken_by() is None


def test_a_reset_is_the_end_of_the_stream(pair: Pair) -> None:
    pair.pipe.send([b"never read"], at(SLACK))
    pair.reset()
    assert pair.pipe.receive(100, at(SLACK)) == b""
    assert pair.pipe.receive_into(memoryview(bytearray(9)), at(SLACK)) == 0
    assert pair.pipe.broken_by() == errno.ECONNRESET


def test_a_reset_is_known_before_it_is_read(pair: Pair) -> None:
    pair.pipe.send([b"never read"], at(SLACK))
    assert pair.pipe.broken_by() is None
    pair.reset()
    assert wait_readable([pair.pipe], at(SLACK)) == [0]
    assert pair.pipe.broken_by() == errno.ECONNRESET
    assert pair.pipe.receive(100, at(SLACK)) == b""
    pair.pipe.close()
    assert pair.pipe.broken_by() == errno.ECONNRESET


def test_a_broken_write_keeps_its_number(pair: Pair) -> None:
    """The first stays, whatever a read says later."""
    pair.far.close()
    for _ in range(50):
        pair.pipe.send([bytes(65_536)], at(SLACK))
    assert pair.pipe.broken_by() in (errno.EPIPE, errno.ECONNRESET)
    known = pair.pipe.broken_by()
    assert pair.pipe.receive(100, at(SLACK)) == b""
    assert pair.pipe.broken_by() == known


def test_the_number_of_a_broken_write_over_a_unix_socket() -> None:
    pair = Pair("unix")
    pair.far.close()
    pair.pipe.send([b"x"], at(SLACK))
    assert pair.pipe.broken_by() == errno.EPIPE
    pair.close()


def test_what_does_not_fit_is_left(pair: Pair) -> None:
    whole = os.urandom(PAYLOAD_BYTES_MAX)
    left = pair.pipe.send_some([whole])
    sent = len(whole) - sum(map(len, left))
    assert 0 < sent < len(whole)
    assert drain(pair.far, sent) == whole[:sent]
    assert b"".join(left) == whole[sent:]


def test_a_broken_write_is_noticed_at_the_next_read(pair: Pair) -> None:
    """S7: and what the peer had said before it left is still read first."""
    pair.far.sendall(b"last words")
    pair.far.close()
    for _ in range(50):
        pair.pipe.send([bytes(65_536)], at(SLACK))
    assert pair.pipe.receive(100, at(SLACK)) == b"last words"
    assert pair.pipe.receive(100, at(SLACK)) == b""


def test_receive_ends_at_its_deadline(pair: Pair) -> None:
    began = time.monotonic()
    for receive in (
        lambda: pair.pipe.receive(1, at(SOON)),
        lambda: pair.pipe.receive_into(memoryview(bytearray(1)), at(SOON)),
    ):
        with pytest.raises(DeadlineError) as late:
            receive()
        assert late.value.code == "deadline.receive"
    assert 2 * SOON <= time.monotonic() - began < SLACK


def test_a_deadline_in_the_past_reads_what_is_there(pair: Pair) -> None:
    pair.far.sendall(b"x")
    assert wait_readable([pair.pipe], at(SLACK)) == [0]
    assert pair.pipe.receive(1, at(-1)) == b"x"
    with pytest.raises(DeadlineError):
        pair.pipe.receive(1, at(-1))


def test_send_ends_at_its_deadline(pair: Pair) -> None:
    began = time.monotonic()
    with pytest.raises(DeadlineError) as late:
        pair.pipe.send([bytes(PAYLOAD_BYTES_MAX)] * 2, at(SOON))
    assert late.value.code == "deadline.send"
    assert SOON <= time.monotonic() - began < SLACK


@pytest.mark.parametrize("sent", [0, 10, 36, 50])
def test_a_peer_that_stops_is_left_at_the_deadline(pair: Pair, sent: int) -> None:
    """A silent acceptor, and a frame that stops in its header, metadata and so on."""
    ack = b'{"parameters":{},"program":"p","program_digest":"","rank":0,"world_size":1}'
    _, buffers = encode(Kind.ACK, epoch=1, sequence=0, metadata=ack)
    pair.far.sendall(b"".join(buffers)[:sent])
    worker = Link(Connection(Side.WORKER, Session(), 0), pair.pipe)
    worker.send(Kind.HELLO, Hello("little", "<f4", 0).to_bytes(), deadline=at(SLACK))
    began = time.monotonic()
    with pytest.raises(DeadlineError) as late:
        worker.receive(deadline=at(SOON))
    assert late.value.code == "deadline.handshake"
    assert time.monotonic() - began < SLACK


def test_a_slow_drip_does_not_extend_the_deadline(pair: Pair) -> None:
    stop = threading.Event()
    _, buffers = encode(Kind.ACK, epoch=1, sequence=0, metadata=b"{}")
    frame = b"".join(buffers)

    def drip() -> None:
        for byte in frame * 100:
            if stop.wait(0.02):
                return
            pair.far.sendall(bytes([byte]))

    worker = Link(Connection(Side.WORKER, Session(), 0), pair.pipe)
    worker.send(Kind.HELLO, Hello("little", "<f4", 0).to_bytes(), deadline=at(SLACK))
    with meanwhile(drip):
        began = time.monotonic()
        with pytest.raises(DeadlineError):
            worker.receive(deadline=at(SOON))
        stop.set()
    assert time.monotonic() - began < SLACK


def test_a_signal_does_not_end_a_wait(pair: Pair) -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: seen.append(number))
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)

    def later() -> None:
        time.sleep(0.2)
        pair.far.sendall(b"x")

    try:
        with meanwhile(later):
            assert pair.pipe.receive(1, at(SLACK)) == b"x"
        assert len(seen) > 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_closing_twice(pair: Pair) -> None:
    pair.pipe.close()
    pair.pipe.close()
    assert pair.pipe.fileno() == -1


def test_waiting_for_any_of_several() -> None:
    pairs = [Pair("unix") for _ in range(3)]
    pipes = [pair.pipe for pair in pairs]
    assert wait_readable(pipes, at(0.01)) == []
    pairs[2].far.sendall(b"x")
    assert wait_readable(pipes, at(SLACK)) == [2]
    pairs[0].far.close()
    assert wait_readable(pipes, at(SLACK)) == [0, 2]
    with pytest.raises(MisuseError):
        wait_readable([pipes[0], pipes[0]], at(0))
    for pair in pairs:
        pair.close()
    with pytest.raises(MisuseError):
        wait_readable([pipes[0]], at(0))
