"""Refusals that no route gives, in the shape of OpenAI's errors: limits, keys, unknown paths."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from starlette.responses import Response
from starlette.types import Send

INVALID: Final = "invalid_request_error"
AUTHENTICATION: Final = "authentication_error"
SERVER: Final = "server_error"
_JSON: Final = "application/json"
_RETRY_AFTER_S: Final = 1


@dataclass(frozen=True)
class Refusal:
    """code: stable, dotted. kind: OpenAI's `type`. retry: whether to say when to come again."""

    status: int
    code: str
    message: str
    kind: str = INVALID
    retry: bool = False

    @property
    def body(self) -> bytes:
        error = {"message": self.message, "type": self.kind, "param": None, "code": self.code}
        return json.dumps({"error": error}, allow_nan=False).encode("ascii")

    @property
    def headers(self) -> dict[str, str]:
        extra: dict[str, str] = {}
        if self.retry:
            extra["retry-after"] = str(_RETRY_AFTER_S)
        if self.status == HTTPStatus.UNAUTHORIZED:
            extra["www-authenticate"] = "Bearer"
        return extra

    def response(self, extra: Mapping[str, str] | None = None) -> Response:
        headers = {**self.headers, **(extra or {})}
        return Response(self.body, self.status, headers, media_type=_JSON)

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """Of an answer after which the connection is closed."""
        lines = {
            "content-type": _JSON,
            "content-length": str(len(self.body)),
            "connection": "close",
            **self.headers,
        }
        return [(name.encode("ascii"), value.encode("ascii")) for name, value in lines.items()]

    async def begin(self, send: Send) -> None:
        """The whole answer, but not its end: the client can read it, and the connection stays."""
        headers = self.raw_headers()
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})

    async def end(self, send: Send) -> None:
        """After `begin`; closes the connection."""
        await send({"type": "http.response.body", "body": b"", "more_body": False})
