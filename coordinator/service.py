"""The control socket: a Unix socket on which clients submit, end and look (docs/spec/service.md).

One thread pumps it. Sockets never wait here: what can't be written now waits in the client's
output, and a client that leaves too much of it unread is gone. It must not know steps or ranks.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from coordinator.engine import EngineSnapshot
from coordinator.engine_inbox import Submissions
from coordinator.service_client import ServiceClient
from coordinator.wake import Wake
from errors import DeadlineError
from program.plan import PlanLimits
from wire.socket_pipe import Listener, SocketPipe

CLIENTS_MAX: Final = 64
_READ_BYTES: Final = 1 << 16
# After running out of descriptors, before the next client is accepted.
ACCEPT_PAUSE_MS: Final = 1_000


@dataclass
class _Connection:
    pipe: SocketPipe
    client: ServiceClient


class ControlService:
    """listener: bound to a Unix socket. wake: set by whoever has something for this thread."""

    def __init__(
        self,
        listener: Listener,
        inbox: Submissions,
        limits: PlanLimits,
        snapshot: Callable[[], EngineSnapshot],
        wake: Wake,
    ) -> None:
        self._listener: Listener | None = listener
        self._inbox = inbox
        self._limits = limits
        self._snapshot = snapshot
        self._wake = wake
        self._connections: dict[int, _Connection] = {}
        self._accept_from = 0.0

    def pump(self, deadline: float) -> None:
        """Everything that can be done now, after waiting for it until `deadline` at most."""
        events = self._wait(deadline)
        self._wake.clear()
        if self._listener is not None and self._listener.fileno() in events:
            self._accept(self._listener)
        for descriptor, connection in list(self._connections.items()):
            event = events.get(descriptor, 0)
            if event & ~select.POLLOUT:
                self._read(connection)
            connection.client.take_updates()
            if connection.client.output and not connection.client.gone:
                _write(connection)
            if connection.client.gone:
                del self._connections[descriptor]
                connection.pipe.close()

    def refuse_newcomers(self) -> None:
        """Nobody can connect any more, and the socket is gone from the file system."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def flush(self, deadline: float) -> None:
        """Until every client has read what was said, or the deadline."""
        while time.monotonic() < deadline:
            for connection in self._connections.values():
                connection.client.take_updates()
            if not any(c.client.output for c in self._connections.values()):
                return
            self.pump(deadline)

    def close(self) -> None:
        """Close every connection; may be called again."""
        self.refuse_newcomers()
        for connection in self._connections.values():
            connection.client.leave()
            connection.pipe.close()
        self._connections.clear()

    def _wait(self, deadline: float) -> dict[int, int]:
        poller = select.poll()
        poller.register(self._wake, select.POLLIN)
        now = time.monotonic()
        full = len(self._connections) >= CLIENTS_MAX
        if self._listener is not None and not full:
            if now >= self._accept_from:
                poller.register(self._listener, select.POLLIN)
            else:
                deadline = min(deadline, self._accept_from)
        for descriptor, connection in self._connections.items():
            wanted = select.POLLOUT if connection.client.output else 0
            poller.register(descriptor, select.POLLIN | wanted)
        return dict(poller.poll(1000 * max(0.0, deadline - now)))

    def _accept(self, listener: Listener) -> None:
        try:
            pipe = listener.accept(time.monotonic())
        except DeadlineError:
            return
        except OSError:
            self._accept_from = time.monotonic() + ACCEPT_PAUSE_MS / 1000
            return
        client = ServiceClient(self._inbox, self._limits, self._snapshot, self._wake.set)
        self._connections[pipe.fileno()] = _Connection(pipe, client)

    def _read(self, connection: _Connection) -> None:
        try:
            data = connection.pipe.receive(_READ_BYTES, time.monotonic())
        except DeadlineError:
            return
        if data:
            connection.client.receive_data(data)
        else:
            connection.client.leave()


def _write(connection: _Connection) -> None:
    """As much as the kernel takes without waiting."""
    output = connection.client.output
    try:
        written = os.write(connection.pipe.fileno(), output)
    except BlockingIOError:
        return
    except OSError:
        connection.client.leave()
        return
    del output[:written]
