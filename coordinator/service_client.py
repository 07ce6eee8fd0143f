"""One client of the control socket, without I/O: lines in, lines out, and its own requests.

`put` is called by the engine's thread and only queues; all else belongs to the thread of the
socket. It must not know sockets or time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from coordinator.engine import EngineSnapshot
from coordinator.engine_inbox import Submissions
from coordinator.request import Finished, RequestEvent, Update
from coordinator.service_protocol import (
    END_EVENTS,
    LINE_BYTES_MAX,
    SYNTAX_CODE,
    Command,
    EndCommand,
    Operation,
    StateCommand,
    SubmitCommand,
    accepted_line,
    ended_line,
    parse_command,
    refused_line,
    state_line,
    update_line,
)
from coordinator.submission import parse_submission
from errors import RequestError, TPError
from program.plan import PlanLimits

# What a client may leave unread before it counts as gone: thousands of tokens with alternatives.
UNREAD_BYTES_MAX: Final = 8 << 20


class ServiceClient:
    """announce: called (by the engine's thread) when there are updates to take.

    output: bytes to write. gone: the connection is to be closed; nothing more is read or written.
    """

    def __init__(
        self,
        inbox: Submissions,
        limits: PlanLimits,
        snapshot: Callable[[], EngineSnapshot],
        announce: Callable[[], None],
    ) -> None:
        self.output = bytearray()
        self.gone = False
        self._inbox = inbox
        self._limits = limits
        self._snapshot = snapshot
        self._announce = announce
        self._input = bytearray()
        self._updates: deque[Update] = deque()
        # Of each live request of this client: whether a token of it was told.
        self._live: dict[int, bool] = {}
        # Those this client ended: a token that was on its way is not told after `taken`.
        self._ended: set[int] = set()

    @property
    def live(self) -> frozenset[int]:
        """Requests of this client whose end it has not been told."""
        return frozenset(self._live)

    def put(self, update: Update) -> None:
        """See `engine_inbox.Outbox`."""
        self._updates.append(update)

    def flush(self) -> None:
        """See `engine_inbox.Outbox`."""
        self._announce()

    def receive_data(self, data: bytes) -> None:
        """Bytes from the client; every whole line is obeyed."""
        self._input += data
        while not self.gone:
            end = self._input.find(b"\n")
            if end < 0:
                break
            line = bytes(self._input[:end])
            del self._input[: end + 1]
            self._obey(line)
        if len(self._input) > LINE_BYTES_MAX:
            rule = f"must have at most {LINE_BYTES_MAX} bytes"
            self._say(refused_line(None, RequestError(SYNTAX_CODE, rule, param="line")))
            self.leave()

    def take_updates(self) -> None:
        """Turns what the engine said into lines; in order, each once."""
        while self._updates:
            update = self._updates.popleft()
            if isinstance(update, Finished):
                self._live.pop(update.request_id, None)
                self._ended.discard(update.request_id)
            elif update.request_id in self._ended:
                continue
            else:
                self._live[update.request_id] = True
            self._say(update_line(update))

    def leave(self) -> None:
        """The client is gone: its requests end as disconnected. May be called again."""
        if not self.gone:
            self.gone = True
            for request_id in sorted(self._live):
                self._inbox.end(request_id, RequestEvent.DISCONNECT)

    def _say(self, line: bytes) -> None:
        if not self.gone:
            self.output += line
            if len(self.output) > UNREAD_BYTES_MAX:
                self.leave()

    def _obey(self, line: bytes) -> None:
        try:
            command = parse_command(line)
        except RequestError as refused:
            self._say(refused_line(None, refused))
            return
        self._say(self._answer(command))

    def _answer(self, command: Command) -> bytes:
        match command:
            case SubmitCommand(tag):
                try:
                    return accepted_line(tag, self._submit(command))
                except TPError as refused:
                    return refused_line(tag, refused)
            case EndCommand(operation, request_id):
                live = request_id in self._live
                if operation is Operation.STOP and not self._live.get(request_id, True):
                    rule = "has no token yet, so no stop string was found in it"
                    return refused_line(
                        None, RequestError("request.range", rule, param="request_id")
                    )
                # An operator may drop anybody's request; all else is the client's own affair.
                if live:
                    self._ended.add(request_id)
                if live or operation is Operation.DROP:
                    self._inbox.end(request_id, END_EVENTS[operation])
                return ended_line(command, live)
            case StateCommand():
                return state_line(self._snapshot())

    def _submit(self, command: SubmitCommand) -> int:
        submission = parse_submission(command.parameters, self._limits)
        request_id = self._inbox.submit(submission, self)
        self._live[request_id] = False
        return request_id
