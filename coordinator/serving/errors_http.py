"""Errors as the public completion interfaces spell them: a status and one JSON object.

`message`, `type`, `param` and `code` are theirs; `rank`, `phase`, `errno` and `errno_name` are
there when a rank failed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from starlette.responses import Response

from errors import OverloadError, PeerError, PoisonedError, RequestError, TPError

# Where one class of error has several statuses, the code decides.
STATUSES: Final[Mapping[str, int]] = {
    "overload.loading": 503,
    "overload.queue_time": 503,
    "overload.stopping": 503,
    "request.body_size": 413,
    "request.time": 408,
    "request.cancelled": 410,
    "request.media_type": 415,
    "request.dropped": 503,
    "request.model": 404,
    "request.not_found": 404,
}
JSON_TYPE: Final = "application/json"
# Told wherever trying again may help.
RETRY_AFTER_S: Final = 1
_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def status_of(error: TPError) -> int:
    """The HTTP status that goes with the error."""
    return STATUSES.get(error.code, error.http_status)


def error_json(error: TPError) -> dict[str, object]:
    """{"error": {...}}; also the data of an error event in a stream."""
    status = status_of(error)
    cause = error.cause if isinstance(error, PoisonedError) else error
    told: dict[str, object] = {
        "message": error.message,
        "type": error_type(status),
        "param": error.param if isinstance(error, RequestError) else None,
        "code": error.code,
    }
    if isinstance(cause, PeerError):
        told |= {"rank": cause.rank, "phase": cause.phase}
        told |= {"errno": cause.errno, "errno_name": cause.errno_name}
    return {"error": told}


def json_bytes(value: object) -> bytes:
    """Strict JSON in UTF-8. A half of a surrogate pair is written as its escape."""
    return _JSON.encode(value).encode("utf-8", "backslashreplace")


def error_response(error: TPError) -> Response:
    """The whole answer."""
    status = status_of(error)
    headers = {}
    if isinstance(error, OverloadError) or status == 503:
        headers["retry-after"] = str(RETRY_AFTER_S)
    if status in (408, 413):
        # The rest of the body is not read, so the connection can't carry another request.
        headers["connection"] = "close"
    return Response(json_bytes(error_json(error)), status, headers, JSON_TYPE)


def error_type(status: int) -> str:
    """OpenAI's `type`, which follows from the status."""
    if status == 401:
        return "authentication_error"
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"
