"""The lines of the control socket (docs/spec/service.md): bytes to commands, events to bytes.

A line from a client is untrusted: bounded, exact keys, one meaning. It must not know sockets,
clients or the engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from coordinator.engine import EngineSnapshot
from coordinator.request import Finished, RequestEvent, Token, Update
from coordinator.service_state import state_json
from errors import ConfigError, PeerError, RequestError, TPError
from program.plan import INTEGER_MAX
from program.strict_json import parse_object

# A prompt of the largest published context, 262,144 tokens, takes two thirds of it.
LINE_BYTES_MAX: Final = 3 << 20
TAG_CHARACTERS_MAX: Final = 128
SYNTAX_CODE: Final = "request.syntax"


class Operation(Enum):
    """The value of `op`."""

    SUBMIT = "submit"
    STOP = "stop"
    CANCEL = "cancel"
    DROP = "drop"
    STATE = "state"


END_EVENTS: Final = {
    Operation.STOP: RequestEvent.STOP,
    Operation.CANCEL: RequestEvent.CANCEL,
    Operation.DROP: RequestEvent.DROP,
}
_KEYS: Final = {
    Operation.SUBMIT: {"op", "parameters", "tag"},
    Operation.STOP: {"op", "request_id"},
    Operation.CANCEL: {"op", "request_id"},
    Operation.DROP: {"op", "request_id"},
    Operation.STATE: {"op"},
}


@dataclass(frozen=True)
class SubmitCommand:
    """tag: the client's own name for the request, given back with its id."""

    tag: str
    parameters: Mapping[str, object]


@dataclass(frozen=True)
class EndCommand:
    """operation: one of END_EVENTS."""

    operation: Operation
    request_id: int


@dataclass(frozen=True)
class StateCommand:
    """Show what exists."""


Command = SubmitCommand | EndCommand | StateCommand


def parse_command(line: bytes) -> Command:
    """The command that a line (without its line feed) holds. Raises RequestError."""
    try:
        value = parse_object(line, "line", bytes_max=LINE_BYTES_MAX, code=SYNTAX_CODE)
    except ConfigError as refused:
        raise RequestError(refused.code, refused.message, param="line") from None
    name = value.get("op")
    operations = {operation.value: operation for operation in Operation}
    if not isinstance(name, str) or name not in operations:
        raise _refused("request.unknown", "op", f"must be one of {', '.join(operations)}")
    operation = operations[name]
    for key in sorted(set(value) - _KEYS[operation]):
        raise _refused("request.unknown", key, f"is no key of {name}")
    for key in sorted(_KEYS[operation] - set(value)):
        raise _refused("request.missing", key, f"must be given with {name}")
    if operation is Operation.SUBMIT:
        return _submit(value)
    if operation is Operation.STATE:
        return StateCommand()
    request_id = value["request_id"]
    if type(request_id) is not int or not 0 <= request_id <= INTEGER_MAX:
        raise _refused("request.type", "request_id", "must be the id of a request")
    return EndCommand(operation, request_id)


def _submit(value: Mapping[str, object]) -> SubmitCommand:
    tag, parameters = value["tag"], value["parameters"]
    if not isinstance(tag, str) or len(tag) > TAG_CHARACTERS_MAX:
        rule = f"must be a text of at most {TAG_CHARACTERS_MAX} characters"
        raise _refused("request.type", "tag", rule)
    if not isinstance(parameters, dict):
        raise _refused("request.type", "parameters", "must be an object")
    return SubmitCommand(tag, parameters)


def _refused(code: str, param: str, rule: str) -> RequestError:
    return RequestError(code, f"{param}: {rule}", param=param)


def accepted_line(tag: str, request_id: int) -> bytes:
    """The request has an id; its updates follow."""
    return _line({"event": "accepted", "request_id": request_id, "tag": tag})


def refused_line(tag: str | None, error: TPError) -> bytes:
    """The line led to nothing. tag: that of a submit that could be read."""
    return _line({"error": error_json(error), "event": "refused", "tag": tag})


def ended_line(command: EndCommand, live: bool) -> bytes:
    """Taken. live: whether the request was this client's and had not finished yet."""
    operation = command.operation.value
    return _line(
        {"event": "taken", "live": live, "op": operation, "request_id": command.request_id}
    )


def state_line(snapshot: EngineSnapshot) -> bytes:
    """The answer to `state`."""
    return _line({"event": "state", "state": state_json(snapshot)})


def update_line(update: Update) -> bytes:
    """What happened to a request."""
    match update:
        case Token():
            return _line(
                {
                    "event": "token",
                    "index": update.index,
                    "logprob": update.logprob,
                    "request_id": update.request_id,
                    "step": update.step,
                    "token_id": update.token_id,
                    "top": [[entry.token_id, entry.logprob] for entry in update.top],
                }
            )
        case Finished():
            return _line(
                {
                    "completion_tokens": update.completion_tokens,
                    "error": None if update.error is None else error_json(update.error),
                    "event": "finished",
                    "outcome": update.outcome.value,
                    "prompt_tokens": update.prompt_tokens,
                    "request_id": update.request_id,
                    "step": update.step,
                }
            )


def error_json(error: TPError) -> dict[str, object]:
    """code, message; where they apply (else null) the parameter, or rank, phase and errno."""
    return {
        "code": error.code,
        "errno": error.errno if isinstance(error, PeerError) else None,
        "errno_name": error.errno_name if isinstance(error, PeerError) else None,
        "message": error.message,
        "param": error.param if isinstance(error, RequestError) else None,
        "phase": error.phase if isinstance(error, PeerError) else None,
        "rank": error.rank if isinstance(error, PeerError) else None,
    }


def _line(value: Mapping[str, object]) -> bytes:
    """Sorted keys, no spaces, ASCII: one spelling. Numbers are finite (plan.md L21)."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return text.encode("ascii") + b"\n"
