"""The command line of `serve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.argument_parser import StrictParser
from coordinator.arguments_control import bounded, control_address
from coordinator.arguments_http import add_http_options, read_http
from coordinator.arguments_model import add_model_options, model_manifest
from coordinator.deadlines import default_ms
from coordinator.options import CallContext
from coordinator.service_options import ServeOptions

MAX_WAITING: Final = 256
# A worker takes ten minutes without a frame for the end of its coordinator.
HEARTBEAT_MS: Final = (1, 300_000)
DRAIN_MS: Final = (0, 3_600_000)
WAITING: Final = (1, 65_536)

_DESCRIPTION: Final = """\
Serves a model to many clients at once: over HTTP (docs/spec/http.md), with --control over a Unix
socket instead (docs/spec/service.md), with --control and --port over both. A signal ends it: no
more requests, those that live may finish, then everything is put away."""

_EXAMPLES: Final = """\
  coordinator serve --port 8000
  coordinator serve --control unix:service.sock
  coordinator serve --control unix:service.sock --checkpoint DIR --tp 4 --max-batch 16"""


def serve_parser(context: CallContext) -> StrictParser:
    parser = StrictParser("coordinator serve [OPTIONS]", _DESCRIPTION, _EXAMPLES)
    add_http_options(parser)
    parser.option("--control", "unix:PATH", "the socket, made here with mode 0600")
    parser.option("--max-waiting", "N", f"requests that may wait (default {MAX_WAITING})")
    heartbeat, drain = default_ms("heartbeat"), default_ms("drain")
    parser.option("--heartbeat-ms", "MS", f"an idle group runs a step (default {heartbeat})")
    parser.option("--drain-ms", "MS", f"after a signal requests may finish (default {drain})")
    add_model_options(parser, many_requests=True)
    return parser


def read_serve(argv: Sequence[str], context: CallContext) -> ServeOptions:
    """Raises ConfigError with every problem."""
    values, problems = serve_parser(context).read(argv)
    control = None
    if values.control is not None:
        control = control_address(values.control, context, problems)
    http = read_http(values, context, problems)
    waiting = bounded("--max-waiting", values.max_waiting, MAX_WAITING, WAITING, problems)
    beat, drain = default_ms("heartbeat"), default_ms("drain")
    beat = bounded("--heartbeat-ms", values.heartbeat_ms, beat, HEARTBEAT_MS, problems)
    drain = bounded("--drain-ms", values.drain_ms, drain, DRAIN_MS, problems)
    manifest = model_manifest(values, context, problems)
    return ServeOptions(manifest, control, waiting, beat, drain, http)
