"""`state`: one question to a running service, and its answer."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Final, cast

from coordinator.service_options import StateOptions
from coordinator.service_state import render_state
from errors import ConfigError, TPError
from program.strict_json import parse_object
from wire.limits import READ_BYTES
from wire.socket_pipe import SocketPipe, connect

# 256 slots with scattered pages, and as many requests as may wait.
_ANSWER_BYTES_MAX: Final = 64 << 20
UNEXPECTED: Final = "service.answer"


def show_state(options: StateOptions) -> str:
    """The page. Raises PeerError or TPError when no service answers in time."""
    state = ask_state(options)
    if options.json:
        return json.dumps(state, sort_keys=True, separators=(",", ":")) + "\n"
    return render_state(state)


def ask_state(options: StateOptions) -> Mapping[str, object]:
    """The object of docs/spec/service.md V5."""
    deadline = time.monotonic() + options.timeout_ms / 1000
    pipe = connect(options.control, deadline)
    try:
        pipe.send([b'{"op":"state"}\n'], deadline)
        line = _read_line(pipe, deadline)
    finally:
        pipe.close()
    try:
        answer = parse_object(line, "answer", bytes_max=_ANSWER_BYTES_MAX, code=UNEXPECTED)
    except ConfigError as refused:
        raise TPError(UNEXPECTED, refused.message) from None
    state = answer.get("state")
    if answer.get("event") != "state" or not isinstance(state, dict):
        raise TPError(UNEXPECTED, "what answered is no service of this kind")
    return cast(Mapping[str, object], state)


def _read_line(pipe: SocketPipe, deadline: float) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n"):
        data = pipe.receive(READ_BYTES, deadline)
        if not data:
            raise TPError(UNEXPECTED, "the service closed the connection without an answer")
        line += data
        if len(line) > _ANSWER_BYTES_MAX:
            raise TPError(UNEXPECTED, f"the answer has more than {_ANSWER_BYTES_MAX} bytes")
    return bytes(line)
