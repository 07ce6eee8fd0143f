"""Every error of the tree has a status and one shape."""

from __future__ import annotations

import json
from errno import EPIPE

import pytest

from coordinator.serving.errors_http import (
    RETRY_AFTER_S,
    error_json,
    error_response,
    json_bytes,
    status_of,
)
from errors import (
    CapacityError,
    ConfigError,
    ContractError,
    DeadlineError,
    OverloadError,
    PoisonedError,
    ProtocolError,
    RequestError,
    TPError,
)

GONE = ProtocolError("closed", "the stream ended", rank=1, phase="plan", errno=EPIPE)
REQUEST = "invalid_request_error"


@pytest.mark.parametrize(
    ("error", "status", "kind", "retry"),
    [
        (RequestError("request.type", "x", param="x"), 400, REQUEST, False),
        (RequestError("request.model", "x", param="model"), 404, REQUEST, False),
        (RequestError("request.body_size", "x", param="body"), 413, REQUEST, False),
        (CapacityError("request.capacity", "x", param="max_tokens"), 400, REQUEST, False),
        (OverloadError("overload.queue", "x"), 429, "rate_limit_error", True),
        (OverloadError("overload.loading", "x"), 503, "server_error", True),
        (OverloadError("overload.stopping", "x"), 503, "server_error", True),
        (TPError("overload.queue_time", "x"), 503, "server_error", True),
        (TPError("request.cancelled", "x"), 410, REQUEST, False),
        (TPError("request.dropped", "x"), 503, "server_error", True),
        (TPError("internal.error", "x"), 500, "server_error", False),
        (ConfigError.single("a", "b", "c"), 400, REQUEST, False),
        (GONE, 503, "server_error", True),
        (ContractError("kind", "x"), 503, "server_error", True),
        (DeadlineError("receive", "x", rank=0), 503, "server_error", True),
        (PoisonedError(GONE), 503, "server_error", True),
    ],
)
def test_status_and_shape(error: TPError, status: int, kind: str, retry: bool) -> None:
    assert status_of(error) == status
    answer = error_response(error)
    assert answer.status_code == status
    assert answer.headers.get("retry-after") == (str(RETRY_AFTER_S) if retry else None)
    told = json.loads(bytes(answer.body))["error"]
    assert told["type"] == kind
    assert told["code"] == error.code
    assert told["message"] == error.message


def test_where_a_rank_failed() -> None:
    for error in (GONE, PoisonedError(GONE)):
        told = error_json(error)["error"]
        assert isinstance(told, dict)
        assert (told["rank"], told["phase"]) == (1, "plan")
        assert (told["errno"], told["errno_name"]) == (EPIPE, "EPIPE")


def test_json_is_strict_and_always_utf_8() -> None:
    assert json.loads(json_bytes({"a": "\ud800é"})) == {"a": "\ud800é"}
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="JSON"):
            json_bytes(number)
