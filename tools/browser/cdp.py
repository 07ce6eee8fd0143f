"""A small client of the Chrome DevTools Protocol: commands with deadlines, and the events seen.

One thread, one WebSocket to the browser, flat sessions: each tab is a session id in the messages.
Events are read whenever a command waits for its answer, and kept per session, in order.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

COMMAND_S: Final = 20.0
# A full-page screenshot arrives as one base64 message.
MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024


class BrowserError(Exception):
    """The browser is missing, did not answer in time, or refused a command."""


@dataclass(frozen=True)
class Event:
    """One event of a session: its method, as `Network.requestWillBeSent`, and its parameters."""

    method: str
    params: dict[str, Any]


@dataclass
class Cdp:
    """Commands and events of one browser. events: by session, in the order of arrival."""

    socket: ClientConnection
    events: defaultdict[str, list[Event]] = field(
        default_factory=lambda: defaultdict(list), repr=False
    )
    next_id: int = 1

    @classmethod
    @contextmanager
    def open(cls, url: str, timeout_s: float) -> Iterator[Cdp]:
        """A connection to the browser's own endpoint, for the length of a `with`."""
        connecting = connect(
            url,
            open_timeout=timeout_s,
            close_timeout=2.0,
            max_size=MESSAGE_BYTES_MAX,
            compression=None,
            proxy=None,
        )
        with ExitStack() as stack:
            try:
                socket = stack.enter_context(connecting)
            except (OSError, TimeoutError) as error:
                raise BrowserError(f"no connection to the browser at {url}: {error}") from error
            yield cls(socket)

    def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        session: str = "",
        timeout_s: float = COMMAND_S,
    ) -> dict[str, Any]:
        """The result of one command. Raises BrowserError when it is refused, or late."""
        deadline = time.monotonic() + timeout_s
        command_id = self.next_id
        self.next_id += 1
        message: dict[str, Any] = {"id": command_id, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        try:
            self.socket.send(json.dumps(message))
        except ConnectionClosed as error:
            raise BrowserError(f"{method}: the browser is gone") from error
        while True:
            answer = self._receive(deadline, method)
            if answer is None:
                raise BrowserError(f"{method}: no answer within {timeout_s:g} s")
            if answer.get("id") != command_id:
                continue
            if "error" in answer:
                raise BrowserError(f"{method}: {answer['error'].get('message')}")
            result: dict[str, Any] = answer["result"]
            return result

    def pump(self, seconds: float) -> None:
        """Read what the browser says for so long; events alone, nothing is asked."""
        deadline = time.monotonic() + seconds
        while self._receive(deadline, "pump") is not None:
            pass

    def _receive(self, deadline: float, what: str) -> dict[str, Any] | None:
        """The next answer or event; None at the deadline."""
        try:
            text = self.socket.recv(timeout=max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            return None
        except ConnectionClosed as error:
            raise BrowserError(f"{what}: the browser is gone") from error
        message: dict[str, Any] = json.loads(text)
        if "method" in message:
            event = Event(message["method"], message.get("params", {}))
            self.events[message.get("sessionId", "")].append(event)
        return message
