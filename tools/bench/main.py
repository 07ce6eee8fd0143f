"""Benchmarks: each prints medians with spread, and ratios against a baseline of the same run.

    bench block [--peers DIR --peer-python FILE] [--rounds N] [--steps N] [--cases N]

Without --peers only this runtime is measured. The baseline needs torch in its own interpreter.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from errors import ConfigError, TPError
from tools.bench.block import Plan, steady, whole_case
from tools.bench.block_peer import Peer
from tools.bench.machine import describe


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
    return parser


def _peer(options: argparse.Namespace, directory: Path) -> Peer | None:
    if (options.peers is None) != (options.peer_python is None):
        raise ConfigError.single("--peers", options.peers, "goes together with --peer-python")
    if options.peers is None:
        return None
    peer = Peer(directory / options.peers, directory / options.peer_python)
    peer.check()
    return peer


def main(argv: Sequence[str]) -> int:
    """Returns the exit code."""
    try:
        options = _parser().parse_args(argv)
        for name in ("rounds", "steps", "cases"):
            if getattr(options, name) < 1:
                raise ConfigError.single(f"--{name}", getattr(options, name), "must be at least 1")
        peer = _peer(options, Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")))
        plan = Plan(options.rounds, options.steps, options.cases, options.transport)
        print(describe(), flush=True)
        print(
            f"\nblock steps on running ranks, {plan.transport}\n\n{steady(plan, peer)}", flush=True
        )
        for start in ("exec", "fork"):
            print(f"\nwhole case, {start}\n\n{whole_case(plan, peer, start)}", flush=True)
    except TPError as failure:
        print(failure.diagnostics(), file=sys.stderr)
        return failure.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
