"""A request's body: bounded in size and time, and strict JSON."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from starlette.types import Receive, Scope

from coordinator.serving.api_options import ApiOptions
from errors import ConfigError, RequestError
from program.strict_json import JsonObject, parse_object

SYNTAX_CODE: Final = "request.syntax"
# Of a body; no request that makes sense comes near. The parser holds the interpreter until it is
# done, whatever its thread, and each of these takes it ten times as long as a token id.
CONTAINERS_MAX: Final = 32_768
# A longer body is parsed in another thread. What calls back, as each float does, lets the loop in.
_PARSED_AT_ONCE: Final = 64 << 10
# Always matches at a quote, whole or not, and never goes back: linear in any body.
_STRING_OR_BRACKET: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)|[\[{]', re.DOTALL)
_QUOTE: Final = ord('"')


class ClientGone(Exception):
    """The client left before it had said all; nobody is there to be answered."""


async def read_object(scope: Scope, receive: Receive, options: ApiOptions) -> JsonObject:
    """The JSON object in the body.

    Raises RequestError: request.media_type, request.body_size, request.time, request.syntax.
    """
    _check_media_type(scope)
    _check_coding(scope)
    try:
        async with asyncio.timeout(options.body_ms / 1000):
            data = await _read(scope, receive, options.body_bytes_max)
    except TimeoutError:
        rule = f"must arrive within {options.body_ms} ms"
        raise RequestError("request.time", f"body: {rule}", param="body") from None
    if len(data) <= _PARSED_AT_ONCE:
        return parse_body(data, options.body_bytes_max)
    return await asyncio.to_thread(parse_body, data, options.body_bytes_max)


def parse_body(data: bytes, bytes_max: int) -> JsonObject:
    """The object that a body holds. Raises RequestError."""
    _check_containers(data)
    try:
        return parse_object(data, "body", bytes_max=bytes_max, code=SYNTAX_CODE)
    except ConfigError as refused:
        raise RequestError(SYNTAX_CODE, refused.message, param="body") from None


def _check_containers(data: bytes) -> None:
    """Before anything is built. Brackets in strings are told apart only where it matters."""
    if data.count(b"[") + data.count(b"{") > CONTAINERS_MAX and _has_too_many(data):
        rule = f"must have at most {CONTAINERS_MAX} arrays and objects"
        raise RequestError(SYNTAX_CODE, f"body: {rule}", param="body")


def _has_too_many(data: bytes) -> bool:
    """One match at a time, so that other threads get their turns."""
    count = 0
    for found in _STRING_OR_BRACKET.finditer(data):
        count += data[found.start()] != _QUOTE
        if count > CONTAINERS_MAX:
            return True
    return False


def _check_media_type(scope: Scope) -> None:
    """A browser sends any other type to a foreign host without asking; JSON it does not."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            essence = value.split(b";")[0].strip().lower()
            if essence == b"application/json":
                return
    rule = "must be application/json"
    raise RequestError("request.media_type", f"content-type: {rule}", param="content-type")


def _check_coding(scope: Scope) -> None:
    """What is packed is not unpacked, and not taken for what it holds."""
    for name, value in scope["headers"]:
        if name == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
            rule = "must be absent or identity"
            raise RequestError(
                "request.media_type", f"content-encoding: {rule}", param="content-encoding"
            )


async def _read(scope: Scope, receive: Receive, bytes_max: int) -> bytes:
    for name, value in scope["headers"]:
        if name == b"content-length" and value.isdigit() and len(value) < 20:
            _check_size(int(value), bytes_max)
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        _check_size(size, bytes_max)
        if not message.get("more_body", False):
            return b"".join(pieces)


def _check_size(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        rule = f"must have at most {bytes_max} bytes"
        raise RequestError("request.body_size", f"body: {rule}", param="body")
