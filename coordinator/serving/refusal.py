"""Refusals that no route gives, in the shape of OpenAI's errors: limits, keys, unknown paths."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from starlette.responses import Response
from starlette.types import Send

from coordinator.serving.errors_http import JSON_TYPE, RETRY_AFTER_S, error_type, json_bytes


@dataclass(frozen=True)
class Refusal:
    """code: stable, dotted. The status decides the rest: the type, and what headers go with it."""

    status: int
    code: str
    message: str

    @property
    def body(self) -> bytes:
        kind = error_type(self.status)
        error = {"message": self.message, "type": kind, "param": None, "code": self.code}
        return json_bytes({"error": error})

    @property
    def headers(self) -> dict[str, str]:
        extra: dict[str, str] = {}
        if self.status == HTTPStatus.SERVICE_UNAVAILABLE:
            extra["retry-after"] = str(RETRY_AFTER_S)
        if self.status == HTTPStatus.UNAUTHORIZED:
            extra["www-authenticate"] = "Bearer"
        return extra

    def response(self, extra: Mapping[str, str] | None = None) -> Response:
        headers = {**self.headers, **(extra or {})}
        return Response(self.body, self.status, headers, media_type=JSON_TYPE)

    def raw_headers(self) -> list[tuple[bytes, bytes]]:
        """Of an answer after which the connection is closed."""
        lines = {
            "content-type": JSON_TYPE,
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
