"""Benchmarks: each prints medians with spread, and ratios against a baseline of the same run.

    bench block [--peers DIR --peer-python FILE] [--rounds N] [--steps N] [--cases N]
    bench model [--hf DIR --hf-python FILE] [--tp 1,2]
    bench ab [--checkpoint DIR | --size quarter|half|full] [--rounds N] [--json FILE] ...
    bench serve [--url URL | --tp N] [--loads NAME,NAME] [--json FILE] ...

Without a baseline only this runtime is measured. A baseline has an interpreter of its own, because
nothing of torch belongs in this project.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from errors import ConfigError, TPError
from tools.bench import ab_command, serve_command
from tools.bench.block import Plan, steady, whole_case
from tools.bench.block_peer import Peer
from tools.bench.machine import describe
from tools.bench.model import Baseline, model

DEGREES = {"1": (1,), "2": (2,), "1,2": (1, 2), "1,2,4": (1, 2, 4)}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError.single("command line", self.prog, message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bench", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    block = commands.add_parser("block", allow_abbrev=False, help="the frozen block against gloo")
    block.add_argument("--peers", metavar="DIR", help="folder of the baseline scripts")
    block.add_argument("--peer-python", metavar="FILE", help="an interpreter that has torch")
    block.add_argument("--rounds", type=int, default=3, metavar="N")
    block.add_argument("--steps", type=int, default=300, metavar="N")
    block.add_argument("--cases", type=int, default=3, metavar="N")
    block.add_argument("--transport", choices=("unix", "tcp"), default="unix")
    models = commands.add_parser("model", allow_abbrev=False, help="Qwen3.5 against transformers")
    models.add_argument("--hf", metavar="DIR", help="folder of the baseline script")
    models.add_argument("--hf-python", metavar="FILE", help="an interpreter with transformers")
    models.add_argument("--tp", default="1,2", metavar="N,N")
    ab = commands.add_parser("ab", allow_abbrev=False, help="replicated, sharded, and one rank")
    ab_command.add_arguments(ab)
    serve = commands.add_parser("serve", allow_abbrev=False, help="loads over HTTP")
    serve_command.add_arguments(serve)
    return parser


def _pair(options: argparse.Namespace, folder: str, python: str) -> tuple[Path, Path] | None:
    """Where a baseline is, and its interpreter; None when neither was given."""
    directory = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
    given = (getattr(options, folder), getattr(options, python))
    if given == (None, None):
        return None
    if None in given:
        raise ConfigError.single(f"--{folder}", given[0], "goes together with its interpreter")
    return directory / given[0], directory / given[1]


def _block(options: argparse.Namespace) -> None:
    for name in ("rounds", "steps", "cases"):
        if getattr(options, name) < 1:
            raise ConfigError.single(f"--{name}", getattr(options, name), "must be at least 1")
    found = _pair(options, "peers", "peer_python")
    peer = Peer(*found) if found is not None else None
    if peer is not None:
        peer.check()
    plan = Plan(options.rounds, options.steps, options.cases, options.transport)
    title = f"block steps on running ranks, {plan.transport}"
    print(f"\n{title}\n\n{steady(plan, peer)}", flush=True)
    for start in ("exec", "fork"):
        print(f"\nwhole case, {start}\n\n{whole_case(plan, peer, start)}", flush=True)


def _model(options: argparse.Namespace) -> None:
    if options.tp not in DEGREES:
        raise ConfigError.single("--tp", options.tp, f"must be one of {', '.join(DEGREES)}")
    found = _pair(options, "hf", "hf_python")
    baseline = Baseline(*found) if found is not None else None
    if baseline is not None:
        baseline.check()
    print(f"\nfour layers of 4B dimensions\n\n{model(baseline, DEGREES[options.tp])}", flush=True)


def main(argv: Sequence[str]) -> int:
    """Returns the exit code."""
    try:
        options = _parser().parse_args(argv)
        print(describe(), flush=True)
        if options.command == "block":
            _block(options)
        elif options.command == "model":
            _model(options)
        elif options.command == "ab":
            ab_command.run(options)
        else:
            serve_command.run(options)
    except TPError as failure:
        print(failure.diagnostics(), file=sys.stderr)
        return failure.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
