"""The command line of `ledger DIR`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.argument_parser import (
    StrictParser,
    optional_integer,
    optional_word,
    refuse,
)
from coordinator.options import CallContext, LedgerOptions
from errors import ConfigProblem
from manifest.fields import RANKS_MAX
from wire.frame import Kind

DIRECTIONS: Final = ("send", "receive")

_DESCRIPTION: Final = """\
Shows the frames of a recorded run, one line each, in the order the coordinator saw them.
Filters can be combined; with --tensor the values and statistics of that tensor are shown."""

_EXAMPLES: Final = """\
  coordinator ledger out
  coordinator ledger out --rank 2 --direction receive
  coordinator ledger out --tensor attention.partial --rank 0"""


def ledger_parser(context: CallContext) -> StrictParser:
    parser = StrictParser("coordinator ledger DIR [OPTIONS]", _DESCRIPTION, _EXAMPLES)
    parser.directory("folder of a run")
    parser.option("--rank", "R", "only frames of this rank")
    parser.option("--kind", "KIND", "only " + ", ".join(kind.name for kind in Kind))
    parser.option("--phase", "PHASE", "only frames of this phase (attention, mlp, load, ...)")
    parser.option("--tensor", "ID", "only this tensor, with its values (wq, x, mlp.total, y, ...)")
    parser.option("--direction", "NAME", "send (coordinator to worker) or receive")
    return parser


def read_ledger(argv: Sequence[str], context: CallContext) -> LedgerOptions:
    """Raises ConfigError with every problem."""
    values, problems = ledger_parser(context).read(argv)
    if not values.directory:
        problems.append(ConfigProblem("DIR", "(not given)", "must name the folder of a run"))
    rank = optional_integer("--rank", values.rank, RANKS_MAX - 1, problems)
    kind = optional_word("--kind", values.kind, [kind.name for kind in Kind], problems)
    direction = optional_word("--direction", values.direction, DIRECTIONS, problems)
    refuse(problems)
    return LedgerOptions(
        directory=context.path(values.directory),
        rank=rank,
        kind=kind,
        phase=values.phase,
        tensor=values.tensor,
        direction=direction,
    )
