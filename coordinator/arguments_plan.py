"""The command line of `plan`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.argument_parser import StrictParser
from coordinator.arguments_model import add_model_options, model_manifest
from coordinator.model_options import PlanOptions
from coordinator.options import CallContext

_DESCRIPTION: Final = """\
Shows what every rank of a model would hold (weights, KV, recurrent and convolution state, scratch,
reserve) and what a token costs on the wire. Reads headers only; starts nothing."""

_EXAMPLES: Final = """\
  coordinator plan
  coordinator plan --checkpoint Qwen3.5-4B --tp 2 --max-batch 16"""


def plan_parser(context: CallContext) -> StrictParser:
    parser = StrictParser("coordinator plan [OPTIONS]", _DESCRIPTION, _EXAMPLES)
    add_model_options(parser, many_requests=True)
    parser.switch("--json", "one JSON object on standard output and nothing else")
    return parser


def read_plan(argv: Sequence[str], context: CallContext) -> PlanOptions:
    """Raises ConfigError with every problem."""
    values, problems = plan_parser(context).read(argv)
    return PlanOptions(model_manifest(values, context, problems), values.json is True)
