"""The options of `serve` that are about HTTP: defaults, bounds, and what must be given together."""

from __future__ import annotations

from pathlib import Path

import pytest

from coordinator.arguments_http import POLICIES
from coordinator.arguments_serve import read_serve
from coordinator.options import CallContext
from coordinator.service_options import HttpOptions
from coordinator.serving.restarts import RestartPolicy
from errors import ConfigError

CONTEXT = CallContext(Path("/call"), model=Path("/model"))


def http(line: str) -> HttpOptions | None:
    return read_serve(line.split(), CONTEXT).http


def fields(line: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        http(line)
    return sorted(problem.field for problem in refused.value.problems)


def test_http_by_default() -> None:
    options = read_serve([], CONTEXT)
    assert options.control is None
    assert options.http == HttpOptions(
        host="127.0.0.1",
        port=8000,
        api_key_file=None,
        restart_policy="exit",
        queue_ms=60_000,
        linger_ms=2_000,
        request_ms=20_000,
        body_bytes=4 << 20,
        connections=None,
        trace=None,
        chrome_trace=None,
        dump_dir=None,
    )


def test_every_flag() -> None:
    options = http(
        "--control unix:s --host 0.0.0.0 --port 0 --api-key-file k --allow-remote --max-body-bytes "
        "1024 --restart-policy on-failure --queue-ms 1 --linger-ms 0 --request-ms 3 "
        "--max-connections 7 --trace t --chrome-trace /c --dump-dir d"
    )
    assert options == HttpOptions(
        host="0.0.0.0",
        port=0,
        api_key_file=Path("/call/k"),
        restart_policy="on-failure",
        queue_ms=1,
        linger_ms=0,
        request_ms=3,
        body_bytes=1024,
        connections=7,
        trace=Path("/call/t"),
        chrome_trace=Path("/c"),
        dump_dir=Path("/call/d"),
    )


@pytest.mark.parametrize(
    ("typed", "host"), [("localhost", "127.0.0.1"), ("127.0.0.9", "127.0.0.9"), ("::1", "::1")]
)
def test_loopback_needs_nothing(typed: str, host: str) -> None:
    options = http(f"--host {typed}")
    assert options is not None
    assert options.host == host


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--host 0.0.0.0", ["--api-key-file", "--host"]),
        ("--host 192.0.2.1 --allow-remote", ["--api-key-file"]),
        ("--host :: --api-key-file k", ["--host"]),
        ("--host example.org --allow-remote --api-key-file k", ["--host"]),
        ("--port 65536", ["--port"]),
        ("--port x --queue-ms 0", ["--port", "--queue-ms"]),
        ("--linger-ms 600001", ["--linger-ms"]),
        ("--request-ms 0", ["--request-ms"]),
        ("--max-body-bytes 1023", ["--max-body-bytes"]),
        ("--max-body-bytes 67108865", ["--max-body-bytes"]),
        ("--max-connections 0", ["--max-connections"]),
        ("--restart-policy always", ["--restart-policy"]),
        ("--control unix:s --host ::1 --allow-remote", ["--allow-remote", "--host"]),
        ("--control unix:s --trace t", ["--trace"]),
        ("--trace t --chrome-trace x/../t", ["--chrome-trace"]),
        ("--trace t --chrome-trace t.1", ["--chrome-trace"]),
    ],
)
def test_refused(line: str, expected: list[str]) -> None:
    assert fields(line) == expected


def test_policies_are_those_of_the_server() -> None:
    assert {policy.value for policy in RestartPolicy} == set(POLICIES)
