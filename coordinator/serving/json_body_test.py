"""Bodies in pieces, announced and not, and clients that leave in the middle."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message

from coordinator.serving import json_body
from coordinator.serving.api_options import ApiOptions
from coordinator.serving.json_body import CONTAINERS_MAX, ClientGone, parse_body, read_object
from errors import RequestError

JSON = [(b"content-type", b"application/json")]
BODY = b'{"prompt":"\xc3\xa9"}'


def read(
    pieces: Sequence[bytes],
    headers: Sequence[tuple[bytes, bytes]] = JSON,
    *,
    whole: bool = True,
    bytes_max: int = 100,
) -> dict[str, object]:
    messages: list[Message] = [
        {"type": "http.request", "body": piece, "more_body": place < len(pieces) - 1 or not whole}
        for place, piece in enumerate(pieces)
    ]
    messages.append({"type": "http.disconnect"})
    remaining = iter(messages)

    async def receive() -> Message:
        return next(remaining)

    scope = {"type": "http", "headers": list(headers)}
    return asyncio.run(read_object(scope, receive, ApiOptions(body_bytes_max=bytes_max)))


@given(st.sets(st.integers(0, len(BODY))))
def test_any_cut_gives_the_same(places: set[int]) -> None:
    cuts = sorted({0, len(BODY)} | places)
    pieces = [BODY[a:b] for a, b in pairwise(cuts)]
    assert read(pieces) == {"prompt": "é"}


def test_the_size_is_bounded_exactly() -> None:
    assert read([BODY], bytes_max=len(BODY)) == {"prompt": "é"}
    with pytest.raises(RequestError) as refusal:
        read([BODY[:5], BODY[5:]], bytes_max=len(BODY) - 1)
    assert refusal.value.code == "request.body_size"


def test_an_announced_size_is_refused_before_it_comes() -> None:
    with pytest.raises(RequestError) as refusal:
        read([], [*JSON, (b"content-length", b"101")])
    assert refusal.value.code == "request.body_size"


def test_a_client_that_leaves() -> None:
    with pytest.raises(ClientGone):
        read([BODY[:4]], whole=False)


def test_a_body_that_takes_too_long() -> None:
    async def receive() -> Message:
        await asyncio.sleep(0.005)
        return {"type": "http.request", "body": b" ", "more_body": True}

    scope = {"type": "http", "headers": JSON}
    with pytest.raises(RequestError) as refusal:
        asyncio.run(read_object(scope, receive, ApiOptions(body_ms=50)))
    assert refusal.value.code == "request.time"


def test_the_type() -> None:
    for headers in ([], [(b"content-type", b"text/plain")], [(b"content-type", b"")]):
        with pytest.raises(RequestError) as refusal:
            read([BODY], headers)
        assert refusal.value.code == "request.media_type"


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_refused(data: bytes) -> None:
    code = "request.syntax"
    try:
        assert isinstance(parse_body(data, 100), dict)
    except RequestError as refusal:
        code = refusal.code
    assert code == "request.syntax"


@pytest.mark.parametrize("opening", ["[", '{"a":'])
def test_a_body_of_very_many_containers_is_refused_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, opening: str
) -> None:
    parsed: list[bytes] = []

    def recorded(data: bytes, source: str, **bounds: object) -> dict[str, object]:
        parsed.append(data)
        return {}

    monkeypatch.setattr(json_body, "parse_object", recorded)
    closing = "]" if opening == "[" else "0}"
    one = opening + closing
    within = f'{{"prompt":[{",".join([one] * (CONTAINERS_MAX - 2))}]}}'.encode()
    parse_body(within, len(within))
    assert parsed == [within]
    beyond = within.replace(b":[", b":[[],", 1)
    with pytest.raises(RequestError) as refusal:
        parse_body(beyond, len(beyond))
    assert (refusal.value.code, parsed) == ("request.syntax", [within])


@pytest.mark.parametrize("text", ["[" * 100_000, '\\"{' * 100_000, "\\\\" + "[{" * 100_000])
def test_brackets_in_a_string_are_text(text: str) -> None:
    body = f'{{"prompt":"{text}"}}'.encode()
    assert set(parse_body(body, len(body))) == {"prompt"}


def test_a_large_body_is_parsed_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []
    parse = parse_body

    def noted(data: bytes, bytes_max: int) -> dict[str, object]:
        threads.append(threading.current_thread() is threading.main_thread())
        return parse(data, bytes_max)

    monkeypatch.setattr(json_body, "parse_body", noted)
    for size in (10, 100_000):
        read([b'{"prompt":"%s"}' % (b"x" * size)], bytes_max=200_000)
    assert threads == [True, False]
