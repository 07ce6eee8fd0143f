"""Clients in a process of their own, so that what they use can be told from the server's.

It is forked before the server exists. Messages are JSON, one at a time, on a socket pair.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from typing import Any, Final

from errors import TPError
from tools.bench.serve_client import DONE, Answer, Endpoint, stream
from tools.bench.serve_loads import COMPLETIONS

# A whole answer is read at once: more than any has, and less than a socket keeps.
WHOLE_BYTES: Final = 64 << 10
_END_S: Final = 10.0


@dataclass(frozen=True)
class Reader:
    """The other process. timeout_s: of one request."""

    endpoint: Endpoint
    timeout_s: float
    ours: Connection

    def wave(self, bodies: Sequence[Mapping[str, object]], *, whole: bool) -> float:
        """Sends all at once and reads to the end; the processor time of it, in seconds.

        whole: each answer is read once it is complete, as by a client on another machine: nothing
        runs here meanwhile. Raises TPError when an answer ends badly.
        """
        asked = {
            "endpoint": asdict(self.endpoint),
            "waits": {"timeout_s": self.timeout_s, "wake_bytes": WHOLE_BYTES if whole else 1},
            "bodies": list(bodies),
        }
        try:
            self.ours.send_bytes(json.dumps(asked).encode("ascii"))
            if not self.ours.poll(self.timeout_s + _END_S):
                raise TPError("bench.failed", "the clients' process does not answer")
            told = json.loads(self.ours.recv_bytes())
        except (OSError, EOFError) as failure:
            raise TPError("bench.failed", f"the clients' process is gone: {failure!r}") from None
        if set(told["ends"]) != {DONE}:
            raise TPError("bench.failed", f"requests of a wave ended: {sorted(set(told['ends']))}")
        return float(told["processor_s"])


@contextmanager
def forked_clients() -> Iterator[Connection]:
    """Our end of the conversation, for a `Reader`. To be entered before any thread exists."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_serve, args=(ours, theirs))
    process.start()
    theirs.close()
    try:
        with ours:
            yield ours
    finally:
        process.join(_END_S)
        if process.exitcode is None:
            process.kill()
            process.join(_END_S)


def _serve(others: Connection, own: Connection) -> None:
    """Until the other end is closed."""
    others.close()
    while True:
        try:
            asked = json.loads(own.recv_bytes())
        except EOFError:
            return
        busy = time.process_time()
        ends = asyncio.run(_wave(asked))
        told = {"ends": ends, "processor_s": time.process_time() - busy}
        own.send_bytes(json.dumps(told).encode("ascii"))


async def _wave(asked: dict[str, Any]) -> list[str]:
    endpoint, waits = Endpoint(**asked["endpoint"]), asked["waits"]
    answers = [Answer("wave", 0.0) for _ in asked["bodies"]]
    async with asyncio.TaskGroup() as group:
        for body, answer in zip(asked["bodies"], answers, strict=True):
            group.create_task(stream(endpoint, COMPLETIONS, body, answer, **waits))
    return [answer.end for answer in answers]
