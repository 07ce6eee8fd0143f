"""The command line of `replay DIR`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.argument_parser import (
    StrictParser,
    optional_integer,
    optional_word,
    refuse,
)
from coordinator.options import CallContext, ReplayOptions
from errors import ConfigProblem
from manifest.fields import RANKS_MAX

ROLES: Final = ("coordinator", "worker")

_DESCRIPTION: Final = """\
Runs one side of a recorded run again, fed from the tape, and compares what it sends with the tape
byte for byte. The worker of a rank is a fresh process; the coordinator needs none."""

_EXAMPLES: Final = """\
  coordinator replay out --role coordinator
  coordinator replay out --role worker --rank 2"""


def replay_parser(context: CallContext) -> StrictParser:
    parser = StrictParser("coordinator replay DIR --role ROLE [OPTIONS]", _DESCRIPTION, _EXAMPLES)
    parser.directory("folder of a run")
    parser.option("--role", "ROLE", "the side to run again: coordinator or worker")
    parser.option("--rank", "R", "compare only this rank (default: all ranks)")
    return parser


def read_replay(argv: Sequence[str], context: CallContext) -> ReplayOptions:
    """Raises ConfigError with every problem."""
    values, problems = replay_parser(context).read(argv)
    if not values.directory:
        problems.append(ConfigProblem("DIR", "(not given)", "must name the folder of a run"))
    if values.role is None:
        problems.append(ConfigProblem("--role", "(not given)", "must be coordinator or worker"))
    role = optional_word("--role", values.role, ROLES, problems)
    rank = optional_integer("--rank", values.rank, RANKS_MAX - 1, problems)
    refuse(problems)
    return ReplayOptions(context.path(values.directory), role or ROLES[0], rank)
