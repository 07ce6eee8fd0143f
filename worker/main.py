"""The worker daemon: connects to a coordinator, serves one session, leaves.

    worker --connect HOST:PORT|unix:PATH --rank R

Exits 0 after a clean close, 2 for a usage mistake, 3 when the conversation failed; then one
sentence stands on standard error. A worker never outlives its coordinator: the end of the
connection ends it, also in the middle of a computation.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import NoReturn

from errors import ConfigError, PeerError, TPError
from identity.source import SOURCE_DIGEST
from model.binding import open_program
from wire.connection import Connection
from wire.frame import Side
from wire.link import Link
from wire.session import Session, State
from wire.socket_pipe import connect, parse_address
from worker.core import WorkerCore
from worker.hangup import HangupWatch

CONNECT_MS = 10_000
IDLE_MS = 600_000
SEND_MS = 10_000


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError.single("command line", " ".join(sys.argv[1:]) or "(empty)", message)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="worker", description=__doc__, allow_abbrev=False)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--connect", required=True, metavar="ADDRESS")
    parser.add_argument("--rank", required=True, type=int, metavar="R")
    parser.add_argument("--connect-ms", type=int, default=CONNECT_MS, metavar="MS")
    parser.add_argument("--idle-ms", type=int, default=IDLE_MS, metavar="MS")
    parser.add_argument("--send-ms", type=int, default=SEND_MS, metavar="MS")
    parser.add_argument("--version", action="version", version=f"worker {SOURCE_DIGEST}")
    return parser


def _bounded(options: argparse.Namespace) -> None:
    for name in ("connect_ms", "idle_ms", "send_ms"):
        value = getattr(options, name)
        if not 1 <= value <= 86_400_000:
            field = "--" + name.replace("_", "-")
            raise ConfigError.single(field, value, "must be 1 to 86400000 milliseconds")
    if not 0 <= options.rank < 64:
        raise ConfigError.single("--rank", options.rank, "must be 0 to 63")


def serve(link: Link, core: WorkerCore, *, idle_s: float, send_s: float) -> None:
    """Run one session to its clean end. Raises PeerError when it ends any other way."""
    clock = link.pipe.clock
    for out in core.start():
        link.send(out.kind, out.metadata, out.payload, flags=out.flags, deadline=clock() + send_s)
    while True:
        agreed = core.expected()
        metadata, size = (agreed.metadata, agreed.payload_bytes) if agreed else (None, None)
        try:
            frame = link.receive(metadata, size, deadline=clock() + idle_s)
        except PeerError as failure:
            if failure.code == "protocol.closed" and core.session.state is State.IDLE:
                return
            raise
        for out in core.handle(frame):
            link.send(
                out.kind, out.metadata, out.payload, flags=out.flags, deadline=clock() + send_s
            )


def _run(options: argparse.Namespace) -> None:
    _bounded(options)
    address = parse_address(options.connect, field="--connect")
    pipe = connect(address, timeout_s=options.connect_ms / 1000)
    session = Session()
    link = Link(Connection(Side.WORKER, session, options.rank, None), pipe)
    core = WorkerCore(options.rank, session, open_program)
    with HangupWatch(pipe.fileno()):
        try:
            serve(link, core, idle_s=options.idle_ms / 1000, send_s=options.send_ms / 1000)
        finally:
            link.close()


def main(argv: Sequence[str]) -> int:
    rank = "?"
    try:
        options = _parser().parse_args(argv)
        rank = str(options.rank)
        _run(options)
    except TPError as failure:
        print(f"worker rank {rank}: {failure.diagnostics()}", file=sys.stderr)
        return failure.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
