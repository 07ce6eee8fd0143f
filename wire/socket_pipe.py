"""Pipes over Unix and TCP sockets: the only `import socket` outside serving.

Sockets are non-blocking: a call tries first and sleeps in poll() only when the kernel has nothing
for it, with what is left of its absolute deadline. Frames carry no authentication, so a listener
binds a loopback address or a Unix socket path and nothing else (S11).
"""

from __future__ import annotations

import errno
import os
import select
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from errors import ConfigError, DeadlineError, MisuseError
from wire.address import Address
from wire.frame import Buffer
from wire.link import Pipe

# What one sendmsg takes on Linux (IOV_MAX).
_BUFFERS_MAX: Final = 1024
# All ranks of one run connect at about the same time.
_BACKLOG: Final = 64
# A worker may start before its coordinator listens; this often is neither slow nor a busy loop.
_RETRY_SECONDS: Final = 0.02
# What connecting meets before the listener is there, or while its backlog is full.
_NOT_YET: Final = frozenset(
    {
        errno.EADDRNOTAVAIL,
        errno.EAGAIN,
        errno.ECONNREFUSED,
        errno.ECONNRESET,
        errno.EINTR,
        errno.ENOENT,
        errno.ETIMEDOUT,
    }
)
_POLL_SECONDS_MAX: Final = 3600.0


class SocketPipe(Pipe):
    """One connected stream socket, which it owns."""

    def __init__(self, stream: socket.socket) -> None:
        stream.setblocking(False)
        if stream.family != socket.AF_UNIX:
            # The other side awaits every frame, so waiting to fill a segment only costs time.
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = stream
        self._broken_by: int | None = None
        self._readable = _poller(stream, select.POLLIN)
        self._writable = _poller(stream, select.POLLOUT)

    def send(self, buffers: list[Buffer], deadline: float) -> None:
        """See `Pipe.send`."""
        pending = self.send_some(buffers)
        while pending:
            if not _wait(self._writable, deadline):
                raise late_send(pending)
            pending = self.send_some(pending)

    def send_some(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        """See `Pipe.send_some`. After a broken write, further writes do nothing (S7)."""
        if self._broken_by is not None:
            return ()
        pending = buffers
        remaining = sum(map(len, buffers))
        while True:
            try:
                sent = self._stream.sendmsg(pending[:_BUFFERS_MAX], (), socket.MSG_NOSIGNAL)
            except BlockingIOError:
                return pending
            except (ConnectionError, TimeoutError) as error:
                self._broken_by = error.errno
                return ()
            remaining -= sent
            if not remaining:
                return ()
            pending = _after(pending, sent)

    def receive(self, limit: int, deadline: float) -> bytes:
        """See `Pipe.receive`. A reset counts as the end of the stream (F8)."""
        while True:
            try:
                return self._stream.recv(limit)
            except BlockingIOError:
                self._await_bytes(deadline)
            except (ConnectionError, TimeoutError) as error:
                self._note(error)
                return b""

    def receive_into(self, space: memoryview, deadline: float) -> int:
        """See `Pipe.receive_into`; nothing is copied."""
        while True:
            try:
                return self._stream.recv_into(space)
            except BlockingIOError:
                self._await_bytes(deadline)
            except (ConnectionError, TimeoutError) as error:
                self._note(error)
                return 0

    def broken_by(self) -> int | None:
        """See `Pipe.broken_by`. Asks the kernel for an error that no call has met yet."""
        if self._broken_by is None and self._stream.fileno() >= 0:
            self._broken_by = self._stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or None
        return self._broken_by

    def clock(self) -> float:
        return time.monotonic()

    def close(self) -> None:
        self._stream.close()

    def fileno(self) -> int:
        return self._stream.fileno()

    def _note(self, error: OSError) -> None:
        if self._broken_by is None:
            self._broken_by = error.errno

    def _await_bytes(self, deadline: float) -> None:
        if not _wait(self._readable, deadline):
            raise DeadlineError("receive", "no more bytes arrived in time")


class Listener:
    """Accepts workers on a loopback address or a Unix socket path."""

    def __init__(self, address: Address) -> None:
        """ConfigError listen: not loopback, in use, or not permitted."""
        self._inode: tuple[int, int] | None = None
        if not address.is_local:
            rule = "must be a loopback address or unix:PATH; frames carry no authentication"
            raise ConfigError.single("listen", address, rule)
        self._socket = socket.socket(_family(address), socket.SOCK_STREAM)
        try:
            self._bind(address)
            self._socket.listen(_BACKLOG)
        except OSError as error:
            self.close()
            raise ConfigError.single("listen", address, _bind_rule(error)) from None
        self._socket.setblocking(False)
        self._readable = _poller(self._socket, select.POLLIN)

    def _bind(self, address: Address) -> None:
        self._path = address.path
        if address.path is None:
            # A port in TIME_WAIT after the last run is free; one with a listener is not.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((address.host, address.port))
            self.address = Address(address.host, self._socket.getsockname()[1])
            return
        self._socket.bind(address.path)
        status = Path(address.path).stat()
        self._inode = status.st_dev, status.st_ino
        # Nobody can connect between bind and listen, so this is not a race.
        Path(address.path).chmod(0o600)
        self.address = address

    @property
    def port(self) -> int:
        """The TCP port in use; 0 for a Unix socket."""
        return self.address.port

    def accept(self, deadline: float) -> SocketPipe:
        """The next connection; DeadlineError handshake."""
        while True:
            try:
                stream, _ = self._socket.accept()
            except BlockingIOError:
                if not _wait(self._readable, deadline):
                    raise DeadlineError("handshake", "no worker connected in time") from None
                continue
            except ConnectionError:
                continue
            return SocketPipe(stream)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """Stop listening and remove the socket's path if it is still the one made here."""
        self._socket.close()
        if self._inode is None or self._path is None:
            return
        inode, self._inode = self._inode, None
        try:
            status = Path(self._path).stat()
            if (status.st_dev, status.st_ino) == inode:
                Path(self._path).unlink()
        except FileNotFoundError:
            return


def connect(address: Address, deadline: float) -> SocketPipe:
    """Connect, again and again until a listener is there; DeadlineError handshake.

    ConfigError connect when the address can never work (port 0, permission, not a socket).
    """
    if address.path is None and address.port == 0:
        raise ConfigError.single("connect", address, "the port must be from 1")
    while True:
        stream = socket.socket(_family(address), socket.SOCK_STREAM)
        code = _try_connect(stream, address, deadline)
        if code == 0:
            return SocketPipe(stream)
        stream.close()
        if code not in _NOT_YET:
            raise ConfigError.single("connect", address, os.strerror(code))
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            message = f"no coordinator at {address}: {os.strerror(code)}"
            raise DeadlineError("handshake", message, errno=code)
        time.sleep(min(_RETRY_SECONDS, remaining))


def late_send(pending: Sequence[Buffer]) -> DeadlineError:
    """The failure of a write of which this was left at its deadline."""
    remaining = sum(map(len, pending))
    return DeadlineError("send", f"{remaining} bytes of a frame could not be written in time")


class Source(Protocol):
    """Anything to poll."""

    def fileno(self) -> int: ...


def wait_readable(sources: Sequence[Source], deadline: float) -> list[int]:
    """Indices of the sources that have something to read or have ended; empty at the deadline."""
    index_of = {source.fileno(): index for index, source in enumerate(sources)}
    if len(index_of) != len(sources) or -1 in index_of:
        raise MisuseError("wait_readable needs distinct, open sources")
    poller = select.poll()
    for descriptor in index_of:
        poller.register(descriptor, select.POLLIN)
    return sorted(index_of[descriptor] for descriptor, _ in poller.poll(_milliseconds(deadline)))


def _try_connect(stream: socket.socket, address: Address, deadline: float) -> int:
    """0 or the error number of one attempt."""
    stream.setblocking(False)
    target = address.path if address.path is not None else (address.host, address.port)
    code = stream.connect_ex(target)
    if code == errno.EINPROGRESS:
        if not _wait(_poller(stream, select.POLLOUT), deadline):
            return errno.ETIMEDOUT
        code = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if code == 0 and address.path is None and stream.getsockname() == stream.getpeername():
        # TCP's simultaneous open: with nobody listening, a free port can connect to itself.
        return errno.ECONNREFUSED
    return code


def _family(address: Address) -> socket.AddressFamily:
    if address.path is not None:
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in address.host else socket.AF_INET


def _bind_rule(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "in use (or a socket file left by a run that was killed: remove it)"
    return f"cannot be bound: {os.strerror(error.errno or 0)}"


def _poller(stream: socket.socket, event: int) -> select.poll:
    poller = select.poll()
    poller.register(stream, event)
    return poller


def _wait(poller: select.poll, deadline: float) -> bool:
    """Sleep until the descriptor is ready (or broken); False at the deadline."""
    return bool(poller.poll(_milliseconds(deadline)))


def _milliseconds(deadline: float) -> float:
    """What is left, for poll(), which rounds up and refuses what a C integer cannot hold."""
    return 1000 * min(max(0.0, deadline - time.monotonic()), _POLL_SECONDS_MAX)


def _after(buffers: Sequence[Buffer], sent: int) -> list[Buffer]:
    """What is left of the buffers after the first `sent` bytes."""
    left: list[Buffer] = []
    for buffer in buffers:
        if sent >= len(buffer):
            sent -= len(buffer)
            continue
        left.append(memoryview(buffer)[sent:])
        sent = 0
    return left
