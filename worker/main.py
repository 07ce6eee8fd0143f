"""The worker daemon: connects to a coordinator, serves one session, leaves.

    worker --connect HOST:PORT|unix:PATH --rank R

Exits 0 after a clean close, 2 for a usage mistake, 3 when the conversation failed; then one
sentence stands on standard error. A worker never outlives its coordinator: the end of the
connection ends it, also in the middle of a computation.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from errors import ConfigError, ConfigProblem, ContractError, TPError
from identity.source import SOURCE_DIGEST
from model.binding import open_program
from wire.address import parse_address
from wire.connection import Connection
from wire.frame import Side
from wire.link import Link, Pipe
from wire.session import Session
from wire.socket_pipe import connect
from worker.core import WorkerCore
from worker.hangup import HangupWatch

CONNECT_MS = 10_000
IDLE_MS = 600_000
SEND_MS = 10_000
INTERRUPTED = 130
# Nothing is demanded of the next frame before it is read.
OPEN = (None, None)


MILLISECONDS_MAX = 86_400_000
RANK_MAX = 63

PipeWrapper = Callable[[Pipe, "WorkerOptions"], Pipe]


@dataclass(frozen=True)
class WorkerOptions:
    """The command line of a worker, checked."""

    connect: str
    rank: int
    connect_ms: int
    idle_ms: int
    send_ms: int


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError.single("command line", self.prog, message)


class _StoreOnce(argparse.Action):
    """The second occurrence of an option is refused, not preferred."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not self.default:
            raise ConfigError.single(option_string or self.dest, values, "given twice")
        setattr(namespace, self.dest, values)


def _integer(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a decimal integer")
    return int(text)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="worker", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--connect", required=True, action=_StoreOnce, metavar="ADDRESS")
    parser.add_argument("--rank", required=True, action=_StoreOnce, type=_integer, metavar="R")
    for flag, default in (
        ("--connect-ms", CONNECT_MS),
        ("--idle-ms", IDLE_MS),
        ("--send-ms", SEND_MS),
    ):
        parser.add_argument(flag, action=_StoreOnce, type=_integer, default=default, metavar="MS")
    parser.add_argument("--version", action="version", version=f"worker {SOURCE_DIGEST}")
    return parser


def worker_options(argv: Sequence[str]) -> WorkerOptions:
    """Parse and check a worker's command line. Raises ConfigError with every problem."""
    given = _parser().parse_args(argv)
    options = WorkerOptions(**vars(given))
    limits = {"rank": (0, RANK_MAX)}
    limits |= dict.fromkeys(("connect_ms", "idle_ms", "send_ms"), (1, MILLISECONDS_MAX))
    problems = [
        ConfigProblem(
            "--" + name.replace("_", "-"), str(getattr(options, name)), f"must be {low} to {high}"
        )
        for name, (low, high) in limits.items()
        if not low <= getattr(options, name) <= high
    ]
    if problems:
        raise ConfigError(problems)
    return options


def serve(link: Link, core: WorkerCore, options: WorkerOptions) -> None:
    """Run one session to its clean end. Raises PeerError when it ends any other way."""
    clock, idle_s, send_s = link.pipe.clock, options.idle_ms / 1000, options.send_ms / 1000
    outgoing = core.start()
    while True:
        for index, (kind, metadata, payload, flags) in enumerate(outgoing, 1):
            hold = index < len(outgoing)
            deadline = clock() + send_s
            link.send(kind, metadata, payload, flags=flags, hold=hold, deadline=deadline)
        agreed = core.expected()
        frame = link.receive_or_end(*(agreed or OPEN), deadline=clock() + idle_s)
        if frame is None:
            return
        try:
            outgoing = core.handle(frame)
        except ContractError as failure:
            # Refused after the connection had let it through: give it its rank and phase.
            raise link.fail(failure) from None


def run(options: WorkerOptions, wrap: PipeWrapper) -> None:
    """Connect and serve one session; `wrap` may put something between the session and the pipe."""
    address = parse_address(options.connect, "--connect")
    pipe = connect(address, time.monotonic() + options.connect_ms / 1000)
    session = Session()
    link = Link(Connection(Side.WORKER, session, options.rank, None), wrap(pipe, options))
    core = WorkerCore(options.rank, session, open_program)
    with HangupWatch(pipe.fileno()):
        try:
            serve(link, core, options)
        finally:
            link.close()


def unwrapped(pipe: Pipe, options: WorkerOptions) -> Pipe:
    """Production: nothing stands between the session and the pipe."""
    return pipe


def main(argv: Sequence[str], wrap: PipeWrapper = unwrapped) -> int:
    """Returns the exit code; failures are one sentence on standard error."""
    name = "worker"
    try:
        options = worker_options(argv)
        name = f"worker of rank {options.rank}"
        run(options, wrap)
    except TPError as failure:
        print(f"{name}: {failure.diagnostics()}", file=sys.stderr)
        return failure.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
