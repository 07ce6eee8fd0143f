"""Lines of the control socket: exact keys, one meaning; any line is a command or a refusal."""

from __future__ import annotations

import json
from errno import EPIPE
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.request import Finished, Outcome, Token
from coordinator.service_protocol import (
    LINE_BYTES_MAX,
    EndCommand,
    Operation,
    StateCommand,
    SubmitCommand,
    accepted_line,
    ended_line,
    parse_command,
    refused_line,
    update_line,
)
from errors import ProtocolError, RequestError
from program.artifacts import TokenLogprob


def line_of(value: object) -> bytes:
    return json.dumps(value).encode("ascii")


@pytest.mark.parametrize(
    ("value", "command"),
    [
        ({"op": "state"}, StateCommand()),
        ({"op": "cancel", "request_id": 3}, EndCommand(Operation.CANCEL, 3)),
        ({"op": "drop", "request_id": 0}, EndCommand(Operation.DROP, 0)),
        ({"op": "stop", "request_id": 2**53 - 1}, EndCommand(Operation.STOP, 2**53 - 1)),
        ({"op": "submit", "tag": "", "parameters": {}}, SubmitCommand("", {})),
        (
            {"op": "submit", "tag": "a", "parameters": {"temperature": 0.5}},
            SubmitCommand("a", {"temperature": 0.5}),
        ),
    ],
)
def test_commands(value: object, command: object) -> None:
    assert parse_command(line_of(value)) == command


@pytest.mark.parametrize(
    ("line", "code", "param"),
    [
        (b"", "request.syntax", "line"),
        (b"[]", "request.syntax", "line"),
        (b"{", "request.syntax", "line"),
        (b'{"op":"state","op":"state"}', "request.syntax", "line"),
        (b'{"op":"state","x":NaN}', "request.syntax", "line"),
        (b'{"op":"state","x":1e999}', "request.syntax", "line"),
        (b'{"op":"\xff"}', "request.syntax", "line"),
        (b"[" * 100_000, "request.syntax", "line"),
        (b'{"op":' + b"1" * 10_000 + b"}", "request.syntax", "line"),
        (b'{"op":"' + b"x" * LINE_BYTES_MAX + b'"}', "request.syntax", "line"),
        (b"{}", "request.unknown", "op"),
        (b'{"op":"fly"}', "request.unknown", "op"),
        (b'{"op":1}', "request.unknown", "op"),
        (b'{"op":["state"]}', "request.unknown", "op"),
        (b'{"op":"state","extra":1}', "request.unknown", "extra"),
        (b'{"op":"cancel"}', "request.missing", "request_id"),
        (b'{"op":"cancel","request_id":true}', "request.type", "request_id"),
        (b'{"op":"cancel","request_id":1.0}', "request.type", "request_id"),
        (b'{"op":"cancel","request_id":-1}', "request.type", "request_id"),
        (b'{"op":"cancel","request_id":9007199254740992}', "request.type", "request_id"),
        (b'{"op":"submit","parameters":{}}', "request.missing", "tag"),
        (b'{"op":"submit","tag":"a"}', "request.missing", "parameters"),
        (b'{"op":"submit","tag":1,"parameters":{}}', "request.type", "tag"),
        (b'{"op":"submit","tag":"' + b"t" * 129 + b'","parameters":{}}', "request.type", "tag"),
        (b'{"op":"submit","tag":"a","parameters":[]}', "request.type", "parameters"),
    ],
)
def test_refusals(line: bytes, code: str, param: str) -> None:
    with pytest.raises(RequestError) as refused:
        parse_command(line)
    assert (refused.value.code, refused.value.param) == (code, param)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)
OPS = st.sampled_from([operation.value for operation in Operation])
COMMANDS = st.fixed_dictionaries(
    {"op": OPS | JSON}, optional={"request_id": JSON, "tag": JSON, "parameters": JSON}
)


@given(st.binary(max_size=99) | JSON.map(line_of) | COMMANDS.map(line_of))
def test_any_line_is_a_command_or_a_refusal(line: bytes) -> None:
    try:
        command = parse_command(line)
    except RequestError:
        return
    assert isinstance(command, SubmitCommand | EndCommand | StateCommand)


def shown(line: bytes) -> Any:
    """The object of a line, which must have the one spelling."""
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    value = json.loads(line)
    assert json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n" == line
    return value


def test_events() -> None:
    token = Token(4, 9, 0, 7, -0.5, (TokenLogprob(7, -0.5), TokenLogprob(8, -1.5)))
    assert shown(update_line(token)) == {
        "event": "token",
        "index": 0,
        "logprob": -0.5,
        "request_id": 4,
        "step": 9,
        "token_id": 7,
        "top": [[7, -0.5], [8, -1.5]],
    }
    cause = ProtocolError("closed", "gone", rank=1, phase="plan", errno=EPIPE)
    end = shown(update_line(Finished(4, Outcome.FAILED, None, 3, 1, cause)))
    assert end["error"] == {
        "code": "protocol.closed",
        "errno": EPIPE,
        "errno_name": "EPIPE",
        "message": "gone",
        "param": None,
        "phase": "plan",
        "rank": 1,
    }
    assert (end["event"], end["outcome"], end["step"]) == ("finished", "failed", None)
    refusal = RequestError("request.range", "seed: too large", param="seed")
    error = shown(refused_line("tag ä", refusal))
    assert (error["event"], error["tag"], error["error"]["param"]) == ("refused", "tag ä", "seed")
    assert shown(accepted_line("a", 4)) == {"event": "accepted", "request_id": 4, "tag": "a"}
    taken = shown(ended_line(EndCommand(Operation.CANCEL, 4), False))
    assert taken == {"event": "taken", "live": False, "op": "cancel", "request_id": 4}
