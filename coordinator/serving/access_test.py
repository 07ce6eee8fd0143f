"""Who is answered: keys, names of the host, pages of other hosts; and which file holds a key."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.serving.access import KEY_BYTES_MAX, AccessRules, read_api_key
from coordinator.serving.live_server import GET, OPEN, live_server
from errors import ConfigError

KEY = "s3cret-Key"
KEYED = AccessRules(
    api_key=KEY,
    health_paths=frozenset({"/health"}),
    open_paths=frozenset({"/open"}),
    loopback_only=False,
)


def with_header(line: str) -> bytes:
    return GET[:-2] + line.encode("latin-1") + b"\r\n\r\n"


@pytest.mark.parametrize("line", [f"Authorization: Bearer {KEY}", f"authorization: bearer  {KEY}"])
def test_the_key(line: str) -> None:
    with live_server(rules=KEYED) as server:
        assert server.ask(with_header(line)).status == 200


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("X: y", "authentication.missing"),
        ("Authorization: Bearer", "authentication.key"),
        ("Authorization: Bearer wrong", "authentication.key"),
        (f"Authorization: Bearer {KEY}x", "authentication.key"),
        (f"Authorization: Bearer {KEY[:-1]}", "authentication.key"),
        (f"Authorization: Basic {KEY}", "authentication.key"),
        (f"Authorization: {KEY}", "authentication.key"),
        (f"Authorization: Bearer {KEY} \xff", "authentication.key"),
    ],
)
def test_no_key(line: str, code: str) -> None:
    with live_server(rules=KEYED) as server:
        answer = server.ask(with_header(line))
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        error = json.loads(answer.body)["error"]
        assert (error["code"], error["type"]) == (code, "authentication_error")
        assert server.routes.bodies == []


def test_open_paths_need_none() -> None:
    """One of them does not exist, and that may be known."""
    with live_server(rules=KEYED) as server:
        assert server.ask(GET.replace(b"/small", b"/open")).status == 404
        assert server.ask(GET.replace(b"/small", b"/health")).status == 200
        assert server.ask(GET.replace(b"/small", b"/open/x")).status == 401
        assert server.ask(GET.replace(b"/small", b"//open")).status == 401


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:80", "127.0.0.1:8000", "127.0.0.9", "[::1]:1"]
)
def test_loopback_names(host: str) -> None:
    with live_server() as server:
        assert server.ask(GET.replace(b"localhost", host.encode("ascii"))).status == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "192.0.2.1",
        "0.0.0.0",
        "[",
        "x:y",
        "",
    ],
)
def test_other_names(host: str) -> None:
    """A name that somebody else's server of names lets point here."""
    asked = GET.replace(b"localhost", host.encode("ascii"))
    with live_server() as server:
        answer = server.ask(asked)
        assert answer.status == 403
        assert json.loads(answer.body)["error"]["code"] == "request.host"
    with live_server(rules=replace(OPEN, loopback_only=False)) as server:
        assert server.ask(asked).status == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:3000", 200),
        ("http://127.0.0.1:8000", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("", 403),
    ],
)
def test_pages_of_other_hosts(origin: str, status: int) -> None:
    with live_server() as server:
        assert server.ask(with_header(f"Origin: {origin}")).status == status


@pytest.mark.parametrize("text", [KEY, KEY + "\n", KEY + "\r\n"])
def test_a_file_with_a_key(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(text.encode("ascii"))
    assert read_api_key(path) == KEY


@pytest.mark.parametrize(
    "data",
    [b"", b"\n", b"two words", b"a\nb", b"a\n\n", b"\xc3\xa9", b"k" * (KEY_BYTES_MAX + 1), b"\0"],
)
def test_files_without_one(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(data)
    with pytest.raises(ConfigError):
        read_api_key(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "absent", tmp_path, tmp_path / "pipe"):
        with pytest.raises(ConfigError):
            read_api_key(path)
