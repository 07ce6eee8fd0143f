"""The coordinator's command line: a table of subcommands, and arguments turned into options.

Without a subcommand (no argument, or an option first) it is `run`. Each subcommand has a file of
its own, arguments_NAME.py; a new one is one more line in SUBCOMMANDS. Pure: nothing is printed,
started or written here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from coordinator.argument_parser import USAGE_CODE, StrictParser, did_you_mean
from coordinator.arguments_generate import generate_parser, read_generate
from coordinator.arguments_ledger import ledger_parser, read_ledger
from coordinator.arguments_plan import plan_parser, read_plan
from coordinator.arguments_replay import read_replay, replay_parser
from coordinator.arguments_run import read_run, run_parser
from coordinator.arguments_score import read_score, score_parser
from coordinator.arguments_serve import read_serve, serve_parser
from coordinator.arguments_state import read_state, state_parser
from coordinator.options import CallContext, HelpRequest, Options, VersionRequest
from errors import ConfigError
from manifest.value_rules import shown

HELP_FLAGS: Final = ("-h", "--help")
VERSION_FLAG: Final = "--version"


@dataclass(frozen=True)
class Subcommand:
    """summary: its line in the list. parser: for the help text. read: arguments to options."""

    summary: str
    parser: Callable[[CallContext], StrictParser]
    read: Callable[[Sequence[str], CallContext], Options]


SUBCOMMANDS: Final[Mapping[str, Subcommand]] = {
    "run": Subcommand("run the block over worker processes (the default)", run_parser, read_run),
    "ledger": Subcommand("show the frames of a recorded run", ledger_parser, read_ledger),
    "plan": Subcommand("show what a model's ranks would hold and send", plan_parser, read_plan),
    "score": Subcommand("log-probabilities of given tokens", score_parser, read_score),
    "generate": Subcommand("continue a prompt with a model", generate_parser, read_generate),
    "serve": Subcommand("serve a model to many clients at once", serve_parser, read_serve),
    "state": Subcommand("show what exists in a running service", state_parser, read_state),
    "replay": Subcommand("replay a recorded run byte for byte", replay_parser, read_replay),
}

_HELP: Final = """\
usage: coordinator [SUBCOMMAND] [OPTIONS]

Tensor-parallel inference over isolated worker processes: every transfer is recorded, can be shown
and can be replayed.

subcommands:
{subcommands}

Without a subcommand, or with an option first, it is run. `coordinator SUBCOMMAND --help` tells
more; `coordinator --version` prints the identity of the sources.

examples:
  coordinator
  coordinator --ranks 2 --seed 3
  coordinator run --ranks 2 --batch 1 --sequence 4 --json
  coordinator ledger out --rank 0
  coordinator replay out --role worker --rank 0
  coordinator generate --prompt "Return the"
  coordinator serve

exit codes: 0 done; 1 a check failed; 2 refused before anything was started; 3 a worker or the
conversation with it failed.
"""


def parse_arguments(argv: Sequence[str], context: CallContext) -> Options:
    """What `argv` (without the program's name) asks for.

    Raises ConfigError (exit code 2), with every problem that can be seen at once.
    """
    if argv and argv[0] in HELP_FLAGS:
        return HelpRequest(help_text())
    if list(argv) == [VERSION_FLAG]:
        return VersionRequest()
    if not argv or argv[0].startswith("-"):
        argv = ["run", *argv]
    name, rest = argv[0], argv[1:]
    subcommand = SUBCOMMANDS.get(name)
    if subcommand is None:
        rule = f"is not one of {', '.join(SUBCOMMANDS)}" + did_you_mean(name, list(SUBCOMMANDS))
        raise ConfigError.single("subcommand", shown(name), rule, USAGE_CODE)
    if any(flag in rest for flag in HELP_FLAGS):
        return HelpRequest(subcommand.parser(context).format_help())
    return subcommand.read(rest, context)


def help_text() -> str:
    """The text of `--help`."""
    lines = [f"  {name:<8} {one.summary}" for name, one in SUBCOMMANDS.items()]
    return _HELP.format(subcommands="\n".join(lines))


def call_directory(environment: Mapping[str, str], working_directory: Path) -> Path:
    """The directory the user typed the command in: under `bazel run` that is not the process's."""
    return working_directory / environment.get("BUILD_WORKING_DIRECTORY", "")
