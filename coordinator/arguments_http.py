"""The options of `serve` that are about HTTP."""

from __future__ import annotations

import argparse
import os
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from coordinator.argument_parser import StrictParser, optional_word
from coordinator.arguments_control import bounded
from coordinator.deadlines import default_ms
from coordinator.options import CallContext
from coordinator.service_options import HttpOptions
from errors import ConfigProblem
from manifest.value_rules import shown

HOST: Final = "127.0.0.1"
PORT: Final = 8000
BODY_BYTES: Final = 4 << 20
POLICIES: Final = ("exit", "on-failure")

_PORTS: Final = (0, 65_535)
_BODY: Final = (1 << 10, 64 << 20)
_CONNECTIONS: Final = (1, 65_536)
_QUEUE_MS: Final = (1, 3_600_000)
_LINGER_MS: Final = (0, 600_000)
_REQUEST_MS: Final = (1, 600_000)
_FLAGS: Final = (
    "--host",
    "--api-key-file",
    "--allow-remote",
    "--restart-policy",
    "--queue-ms",
    "--linger-ms",
    "--request-ms",
    "--max-body-bytes",
    "--max-connections",
    "--trace",
    "--chrome-trace",
    "--dump-dir",
)


def add_http_options(parser: StrictParser) -> None:
    queue, linger, request = (default_ms(name) for name in ("queue", "linger", "request"))
    parser.option("--host", "ADDRESS", f"IP address to listen at (default {HOST})")
    parser.option("--port", "N", f"TCP port, 0 for any free one (default {PORT})")
    parser.option("--api-key-file", "FILE", "clients must send the key that this file holds")
    parser.switch("--allow-remote", "listen at an address that is not loopback; needs a key")
    parser.option("--restart-policy", "NAME", "after a failure: exit (default) or on-failure")
    parser.option("--queue-ms", "MS", f"a request may wait for a slot (default {queue})")
    parser.option("--linger-ms", "MS", f"a failure can be read before the end (default {linger})")
    parser.option("--request-ms", "MS", f"a whole request has arrived (default {request})")
    parser.option("--max-body-bytes", "N", f"size of a request's body (default {BODY_BYTES})")
    parser.option("--max-connections", "N", "requests answered at once (default 512)")
    parser.option("--trace", "FILE", "write every step's times, one JSON object per line")
    parser.option("--chrome-trace", "FILE", "write every step's times for a trace viewer")
    parser.option("--dump-dir", "DIR", "after a failure, write the last frames of each rank here")


def read_http(
    values: argparse.Namespace, context: CallContext, problems: list[ConfigProblem]
) -> HttpOptions | None:
    """None when the control socket alone is asked for; adds a problem for everything wrong."""
    if values.port is None and values.control is not None:
        given = [flag for flag in _FLAGS if getattr(values, _name(flag)) is not None]
        rule = "is about HTTP, which --control alone does not start; give --port too"
        problems.extend(ConfigProblem(flag, "(given)", rule) for flag in given)
        return None

    def path(typed: str | None) -> Path | None:
        return None if typed is None else context.path(typed)

    _check_traces(path(values.trace), path(values.chrome_trace), problems)
    queue, linger, request = (default_ms(name) for name in ("queue", "linger", "request"))
    policy = optional_word("--restart-policy", values.restart_policy, POLICIES, problems)
    return HttpOptions(
        host=_host(values, problems),
        port=bounded("--port", values.port, PORT, _PORTS, problems),
        api_key_file=path(values.api_key_file),
        restart_policy=policy or POLICIES[0],
        queue_ms=bounded("--queue-ms", values.queue_ms, queue, _QUEUE_MS, problems),
        linger_ms=bounded("--linger-ms", values.linger_ms, linger, _LINGER_MS, problems),
        request_ms=bounded("--request-ms", values.request_ms, request, _REQUEST_MS, problems),
        body_bytes=bounded("--max-body-bytes", values.max_body_bytes, BODY_BYTES, _BODY, problems),
        connections=_connections(values, problems),
        trace=path(values.trace),
        chrome_trace=path(values.chrome_trace),
        dump_dir=path(values.dump_dir),
    )


def _check_traces(
    trace: Path | None, chrome_trace: Path | None, problems: list[ConfigProblem]
) -> None:
    """Two writers of one file would leave neither trace."""
    if trace is None or chrome_trace is None:
        return
    taken = [os.path.realpath(name) for name in (trace, f"{trace}.1")]
    if os.path.realpath(chrome_trace) in taken:
        rule = "must be neither the file of --trace nor the older one beside it"
        problems.append(ConfigProblem("--chrome-trace", shown(str(chrome_trace)), rule))


def _connections(values: argparse.Namespace, problems: list[ConfigProblem]) -> int | None:
    """None when not given: as many as usual, or as there are descriptors for."""
    if values.max_connections is None:
        return None
    low, _ = _CONNECTIONS
    return bounded("--max-connections", values.max_connections, low, _CONNECTIONS, problems)


def _host(values: argparse.Namespace, problems: list[ConfigProblem]) -> str:
    typed = values.host
    if typed is None or typed == "localhost":
        return HOST
    try:
        address = ip_address(typed)
    except ValueError:
        problems.append(ConfigProblem("--host", shown(typed), "must be an IP address or localhost"))
        return HOST
    if not address.is_loopback:
        if values.allow_remote is None:
            rule = "is no loopback address; --allow-remote allows it"
            problems.append(ConfigProblem("--host", shown(typed), rule))
        if values.api_key_file is None:
            rule = "must be given with an address that is not loopback"
            problems.append(ConfigProblem("--api-key-file", "(not given)", rule))
    return str(address)


def _name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
