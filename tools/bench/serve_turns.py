"""One server, one set of ranks, and turns of the same requests: over HTTP, and without.

Everything is in this process but the ranks and the clients, so that each thread's processor time
can be told, and a turn without HTTP runs on the very engine that the server has. Which way is first
in a round is drawn from a seed.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, TextIO

from coordinator.model_run import ModelBindings
from coordinator.request import Finished, Outcome, Update
from coordinator.service_options import ServeOptions
from coordinator.serving.backend import Backend
from coordinator.serving.command import HttpService, http_service
from coordinator.serving.served import Phase
from coordinator.step_timing import ObservedStep
from coordinator.submission import parse_submission
from errors import TPError
from tools.bench.serve_client import Endpoint
from tools.bench.serve_loads import Asking, completion_body
from tools.bench.serve_overhead import Overhead, Pace, Turn, Way
from tools.bench.serve_reader import Reader, forked_clients

BATCH: Final = 8
# Short, so that a machine that slows down slows all turns of a round.
TURN_TOKENS: Final = 24
_READY_S: Final = 120.0
# What runs after the last token of a turn: releases, and telling of them.
_QUIET_S: Final = 0.02


def overhead(
    options: ServeOptions, bindings: ModelBindings, asking: Asking, rounds: int, log: TextIO
) -> Overhead:
    """`rounds` rounds of one turn each way, after one to get warm. For the main thread.

    options: of a server at a port of its own that takes BATCH requests at once. Raises TPError.
    """
    with forked_clients() as clients, http_service(options, bindings, log) as service:
        reader = Reader(Endpoint.of(service.url), asking.timeout_s, clients)
        driver = _Driver(service, reader, asking, rounds)
        thread = threading.Thread(target=driver.run, name="turns", daemon=True)
        thread.start()
        service.run()
        thread.join()
    if driver.crash is not None:
        raise driver.crash
    return Overhead(BATCH, driver.rounds[1:])


class _Driver:
    """Beside the server: its own thread. crash: what ended it early."""

    def __init__(self, service: HttpService, reader: Reader, asking: Asking, rounds: int) -> None:
        self.rounds: list[dict[Way, Turn]] = []
        self.crash: BaseException | None = None
        self._service = service
        self._reader = reader
        self._asking = asking
        self._count = rounds + 1
        self._random = random.Random(asking.seed)
        # The loop is the main thread's.
        self._loop = _clock_of(threading.main_thread())

    def run(self) -> None:
        """All turns, then the end of the server."""
        backend = self._service.backend
        try:
            _await_ready(backend)
            engine = _clock_of(_named("engine"))
            for _ in range(self._count):
                order = self._random.sample(list(Way), len(Way))
                self.rounds.append({way: self._turn(way, engine) for way in order})
        except BaseException as crash:
            # Told by the main thread, which waits for the server's end.
            self.crash = crash
        finally:
            backend.stop(backend.clock())

    def _turn(self, way: Way, engine: int) -> Turn:
        known = self._service.log.recent(1)
        first = known[0].plan.step + 1 if known else 0
        bodies = [_body(self._asking, self._service.backend, number) for number in range(BATCH)]
        clocks = [engine, self._loop]
        before = [time.clock_gettime(clock) for clock in clocks]
        clients_s = self._ways()[way](bodies)
        used = [time.clock_gettime(clock) - at for clock, at in zip(clocks, before, strict=True)]
        time.sleep(_QUIET_S)
        steps = [s for s in self._service.log.recent(2 * TURN_TOKENS) if s.plan.step >= first]
        pace = pace_of(steps, BATCH)
        if len(pace.periods) < TURN_TOKENS // 2:
            raise TPError("bench.failed", f"{len(pace.periods)} full steps in a turn")
        engine_us, loop_us, clients_us = (
            seconds * 1e6 / len(steps) for seconds in (*used, clients_s)
        )
        return Turn(pace, engine_us, loop_us, clients_us)

    def _ways(self) -> dict[Way, Callable[[Sequence[dict[str, object]]], float]]:
        return {
            Way.ENGINE: self._without_http,
            Way.HTTP: lambda bodies: self._reader.wave(bodies, whole=True),
            Way.STREAMED: lambda bodies: self._reader.wave(bodies, whole=False),
        }

    def _without_http(self, bodies: Sequence[dict[str, object]]) -> float:
        """The same requests, given to the engine. Nothing is used by clients."""
        backend = self._service.backend
        outbox = _Outbox(len(bodies))
        for body in bodies:
            given = {"prompt_token_ids": body["prompt"], "max_tokens": body["max_tokens"]}
            backend.submit(parse_submission(given, backend.limits), outbox)
        if not outbox.done.wait(self._asking.timeout_s):
            raise TPError("bench.failed", "requests without HTTP did not end in time")
        if outbox.outcomes != [Outcome.LENGTH] * len(bodies):
            raise TPError("bench.failed", f"requests without HTTP ended: {outbox.outcomes}")
        return 0.0


class _Outbox:
    """Of all requests of a turn: what they say is let go."""

    def __init__(self, requests: int) -> None:
        self.outcomes: list[Outcome] = []
        self.done = threading.Event()
        self._requests = requests

    def put(self, update: Update) -> None:
        if isinstance(update, Finished):
            self.outcomes.append(update.outcome)

    def flush(self) -> None:
        if len(self.outcomes) == self._requests:
            self.done.set()


def pace_of(steps: Sequence[ObservedStep], batch: int) -> Pace:
    """Of decode steps of `batch` rows that follow each other, nobody entering."""
    found = Pace([], [])
    for before, after in pairwise(steps):
        if all(step.decode_rows == batch and not step.prefill_tokens for step in (before, after)):
            found.periods.append((after.start - before.start) * 1e3)
            found.steps.append(before.duration * 1e3)
    return found


def _body(asking: Asking, backend: Backend, number: int) -> dict[str, object]:
    body = completion_body(asking, number, asking.prompt)
    return body | {"model": backend.model_id, "max_tokens": TURN_TOKENS}


def _await_ready(backend: Backend) -> None:
    deadline = time.monotonic() + _READY_S
    while (status := backend.status()).phase is not Phase.SERVING:
        if status.failure is not None:
            raise status.failure.cause
        if status.phase is Phase.ENDED or time.monotonic() >= deadline:
            raise TPError("process.start", f"the server of the turns is {status.phase.value}")
        time.sleep(0.01)


def _named(name: str) -> threading.Thread:
    return next(thread for thread in threading.enumerate() if thread.name == name)


def _clock_of(thread: threading.Thread) -> int:
    """Its processor time, for `time.clock_gettime`."""
    if thread.ident is None:
        raise TPError("bench.failed", f"thread {thread.name} does not run")
    return time.pthread_getcpuclockid(thread.ident)
