"""Who may ask at all: the API key, and the names under which the server may be addressed.

Health is open, because what watches over a service has no key. docs/spec/http.md H24 to H26.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from coordinator.serving.http_limits import HttpLimits
from coordinator.serving.refusal import Refusal
from errors import ConfigError

KEY_BYTES_MAX: Final = 4096
LOOPBACK_NAME: Final = "localhost"

_LARGE_HEAD: Final = Refusal(431, "request.head", "the request's head is too large")
_TWO_LENGTHS: Final = Refusal(
    400, "request.http", "a body has a length or comes in chunks, but not both"
)
_NO_KEY: Final = Refusal(
    401, "authentication.missing", "send the API key as `Authorization: Bearer KEY`"
)
_WRONG_KEY: Final = Refusal(401, "authentication.key", "the API key is wrong")
_STRANGE_HOST: Final = Refusal(
    403, "request.host", "without an API key only loopback names are answered"
)
_STRANGE_ORIGIN: Final = Refusal(
    403, "request.origin", "without an API key pages of other hosts are not answered"
)


def read_api_key(path: Path) -> str:
    """The key: one line of visible ASCII characters. Raises ConfigError."""
    flag = "--api-key-file"
    if not path.is_file():
        raise ConfigError.single(flag, path, "must be a file")
    try:
        with path.open("rb") as file:
            data = file.read(KEY_BYTES_MAX + 1)
    except OSError as failure:
        raise ConfigError.single(flag, path, f"can't be read: {failure.strerror}") from None
    key = data.removesuffix(b"\n").removesuffix(b"\r")
    if not key or len(data) > KEY_BYTES_MAX or not all(0x21 <= byte <= 0x7E for byte in key):
        rule = f"must hold one line of visible ASCII characters, {KEY_BYTES_MAX} bytes at most"
        raise ConfigError.single(flag, path, rule)
    return key.decode("ascii")


@dataclass(frozen=True)
class AccessRules:
    """api_key: None when none is asked for. health_paths: answered without it, and however many
    others are; open_paths: of the others, those without it.

    loopback_only: requests that name another host, or come from another host's page, are refused:
    a page in the browser of this machine's user reaches a loopback address too.
    """

    api_key: str | None
    health_paths: Collection[str]
    open_paths: Collection[str]
    loopback_only: bool


class Access:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, rules: AccessRules, limits: HttpLimits) -> None:
        self._app = app
        self._rules = rules
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._judge(scope) if scope["type"] == "http" else None
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            # The body is not waited for: whoever has no key gets no further.
            await refusal.begin(send)
            await refusal.end(send)

    def _judge(self, scope: Scope) -> Refusal | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if len(headers) > self._limits.headers:
            message = f"a request has at most {self._limits.headers} header fields"
            return Refusal(431, "request.head", message)
        if _head_bytes(scope) > self._limits.head_bytes:
            return _LARGE_HEAD
        names = {name for name, _ in headers}
        if names >= {b"transfer-encoding", b"content-length"}:
            # A proxy in front may go by the other one, and see another request end.
            return _TWO_LENGTHS
        if self._rules.loopback_only:
            if not _is_loopback(_first(headers, b"host"), "//"):
                return _STRANGE_HOST
            origin = _first(headers, b"origin")
            if origin is not None and not _is_loopback(origin, ""):
                return _STRANGE_ORIGIN
        path = scope["path"]
        is_open = path in self._rules.health_paths or path in self._rules.open_paths
        if self._rules.api_key is None or is_open:
            return None
        given = _first(headers, b"authorization")
        if given is None:
            return _NO_KEY
        return None if _is_key(given, self._rules.api_key) else _WRONG_KEY


def _head_bytes(scope: Scope) -> int:
    """As it would be at its shortest; h11 bounds only one that has not arrived whole."""
    target = len(scope["method"]) + len(scope["raw_path"]) + len(scope["query_string"])
    fields = sum(len(name) + len(value) + len(b":\r\n") for name, value in scope["headers"])
    return target + len(b"  HTTP/1.1\r\n") + fields + len(b"\r\n")


def _first(headers: list[tuple[bytes, bytes]], wanted: bytes) -> bytes | None:
    return next((value for name, value in headers if name == wanted), None)


def _is_loopback(value: bytes | None, prefix: str) -> bool:
    """HTTP/1.0 needs no Host, and no browser speaks it."""
    if value is None:
        return True
    try:
        name = urlsplit(prefix + value.decode("latin-1")).hostname or ""
        return name == LOOPBACK_NAME or ip_address(name).is_loopback
    except ValueError:
        return False


def _is_key(header: bytes, key: str) -> bool:
    """Compared as digests, in a time that does not depend on where they differ."""
    scheme, _, given = header.partition(b" ")
    expected = sha256(key.encode("ascii")).digest()
    same = hmac.compare_digest(sha256(given.strip()).digest(), expected)
    return scheme.lower() == b"bearer" and same
