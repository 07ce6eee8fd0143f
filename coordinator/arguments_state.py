"""The command line of `state`, which looks at a running service."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.argument_parser import StrictParser, refuse
from coordinator.arguments_control import bounded, control_address
from coordinator.deadlines import default_ms
from coordinator.options import CallContext
from coordinator.service_options import StateOptions

TIMEOUT_MS: Final = (1, 600_000)

_DESCRIPTION: Final = """\
Shows what exists in a running service: requests, slots, pages, the ranks' digests, and the first
failure if there was one. Changes nothing."""

_EXAMPLES: Final = """\
  coordinator state --control unix:service.sock
  coordinator state --control unix:service.sock --json"""


def state_parser(context: CallContext) -> StrictParser:
    parser = StrictParser("coordinator state --control ADDRESS", _DESCRIPTION, _EXAMPLES)
    parser.option("--control", "unix:PATH", "the socket of the service")
    parser.option("--timeout-ms", "MS", f"for the answer (default {default_ms('state')})")
    parser.switch("--json", "one JSON object on standard output and nothing else")
    return parser


def read_state(argv: Sequence[str], context: CallContext) -> StateOptions:
    """Raises ConfigError with every problem."""
    values, problems = state_parser(context).read(argv)
    control = control_address(values.control, context, problems)
    timeout = default_ms("state")
    timeout = bounded("--timeout-ms", values.timeout_ms, timeout, TIMEOUT_MS, problems)
    refuse(problems)
    return StateOptions(control, timeout, values.json is True)
