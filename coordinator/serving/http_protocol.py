"""uvicorn's HTTP/1.1 protocol with the waits and bounds that it leaves open.

A client that sends its request too slowly, takes its answer too slowly, or is one too many loses
its connection, and nobody else notices. It must not know routes. docs/spec/http.md H20 to H23.
"""

from __future__ import annotations

import asyncio
import sys
from http import HTTPStatus
from typing import Any, ClassVar, Final, cast

import h11
from starlette.types import Scope
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from coordinator.serving.direct_write import offering
from coordinator.serving.http_limits import CONNECTIONS_RESERVED, HttpLimits
from coordinator.serving.refusal import Refusal
from coordinator.serving.request_limit import FULL
from errors import MisuseError

_ENDING: Final = Refusal(503, "overload.stopping", "the service is stopping")
_LATE: Final = Refusal(408, "request.time", "the request did not arrive in time")
_HEAD: Final = Refusal(431, "request.head", "the request's head is too large")
_SYNTAX: Final = Refusal(400, "request.http", "this is not a valid HTTP request")
_AWAITED: Final = (h11.IDLE, h11.SEND_BODY)
_CAN_ANSWER: Final = (h11.IDLE, h11.SEND_RESPONSE)


class Gate:
    """The open connections of one server, oldest first."""

    def __init__(self, connections_max: int) -> None:
        self._max = connections_max
        self._open: dict[GuardedProtocol, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, newcomer: GuardedProtocol) -> bool:
        """Whether it may stay: the oldest one without a request makes room for it."""
        if len(self._open) >= self._max:
            idle = next((known for known in self._open if known.is_idle), None)
            if idle is None:
                return False
            del self._open[idle]
            idle.abort()
        self._open[newcomer] = None
        return True

    def leave(self, known: GuardedProtocol) -> None:
        self._open.pop(known, None)


class GuardedProtocol(H11Protocol):
    """One connection. See `guarded` for a class with its limits."""

    limits: ClassVar[HttpLimits]
    gate: ClassVar[Gate]

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.app = cast(Any, offering(cast(Any, self.app), self.write_body))
        self._turned_away = False
        self._heard = False
        self._request_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """No whole request is being answered."""
        cycle = self._last_cycle()
        return cycle is None or cycle.response_complete

    def abort(self) -> None:
        """Close at once, whatever has not been written."""
        self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if not isinstance(transport, asyncio.Transport):
            raise MisuseError("HTTP needs a transport that reads and writes")
        super().connection_made(transport)
        if self.gate.admit(self):
            self._watch_request()
        else:
            self._turned_away = True
            self._refuse(FULL)

    def connection_lost(self, exc: Exception | None) -> None:
        self.gate.leave(self)
        self._cancel_request_timer()
        self._cancel_stall_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._turned_away:
            self._heard = True
            super().data_received(data)
            self._watch_request()
            self._keep_listening()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        unread, _ = self.conn.trailing_data
        if self.conn.their_state is h11.IDLE and not unread:
            # Between two requests the keep-alive timer is the one that runs.
            self._cancel_request_timer()
        else:
            self._watch_request()

    def shutdown(self) -> None:
        """Called when the server ends. A request that is still arriving has come too late."""
        if not self.is_idle and self.conn.their_state in _AWAITED:
            self._refuse(_ENDING)
        else:
            super().shutdown()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._cancel_stall_timer()
        self._stall_timer = self.loop.call_later(self.limits.stall_ms / 1000, self.abort)

    def resume_writing(self) -> None:
        self._cancel_stall_timer()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn while it handles h11's error, which knows what is wrong."""
        error = sys.exc_info()[1]
        hint = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        too_large = hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        self._refuse(_HEAD if too_large else _SYNTAX)

    def write_body(self, scope: Scope, data: bytes) -> bool:
        """See `direct_write.DirectWrite`.

        h11 would make the same bytes: whoever speaks HTTP/1.1 gets a body without a length in
        chunks. An empty chunk would be the end of the body, and HEAD has none.
        """
        cycle = self._last_cycle()
        if cycle is None or cycle.scope is not scope or self.flow.write_paused or not data:
            return False
        if scope["http_version"] != "1.1" or scope["method"] == "HEAD":
            return False
        if cycle.disconnected or cycle.response_complete or not cycle.response_started:
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return True

    def _last_cycle(self) -> RequestResponseCycle | None:
        """None before the first request, whatever its annotation says."""
        return self.cycle

    def _watch_request(self) -> None:
        """A request that has not arrived whole has a deadline, which no further byte extends."""
        if self.transport.is_closing() or self.conn.their_state not in _AWAITED:
            self._cancel_request_timer()
        elif self._request_timer is None:
            seconds = self.limits.request_ms / 1000
            self._request_timer = self.loop.call_later(seconds, self._request_is_late)

    def _keep_listening(self) -> None:
        """Of a client that sends its next request early it must still be seen when it leaves.

        uvicorn stops reading there; here it goes on up to the size of a head.
        """
        if self.conn.their_state is h11.DONE and self.flow.read_paused:
            early, _ = self.conn.trailing_data
            if len(early) > self.limits.head_bytes:
                self.abort()
            else:
                self.flow.resume_reading()

    def _request_is_late(self) -> None:
        self._request_timer = None
        if self._heard:
            self._refuse(_LATE)
        else:
            self.transport.close()

    def _refuse(self, refusal: Refusal) -> None:
        """Answer, if nothing was answered yet, and close; a route that waits sees a disconnect."""
        cycle = self._last_cycle()
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state not in _CAN_ANSWER:
            self.abort()
            return
        headers = refusal.raw_headers()
        reason = STATUS_PHRASES[refusal.status]
        answer = h11.Response(status_code=refusal.status, headers=headers, reason=reason)
        for event in (answer, h11.Data(data=refusal.body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _cancel_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    def _cancel_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def guarded(given: HttpLimits) -> type[GuardedProtocol]:
    """The protocol of one server: uvicorn wants a class."""

    class Guarded(GuardedProtocol):
        limits = given
        gate = Gate(given.connections + CONNECTIONS_RESERVED)

    return Guarded
