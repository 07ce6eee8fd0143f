"""A model's ranks as processes, from start to end: the context every model subcommand runs in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Final

from coordinator.local_ranks import LocalRanks
from coordinator.model_session import ModelSession
from coordinator.model_setup import Machine, ModelSetup
from coordinator.processes import Launcher, WorkerExit
from coordinator.terminal import printable
from errors import PeerError, ProtocolError
from manifest.run_manifest import RunManifest
from wire.recorder import Recorder

# Shows how far the load is while it is entered; gets the process ids by rank.
LoadWatch = Callable[[ModelSetup, Mapping[int, int]], AbstractContextManager[None]]

CLOSE_PHASE: Final = "close"
# A worker that failed closes its connection first and then says why.
LAST_WORDS_MS: Final = 500


def unwatched(setup: ModelSetup, pids: Mapping[int, int]) -> AbstractContextManager[None]:
    """Nobody looks."""
    return nullcontext()


@dataclass(frozen=True)
class ModelBindings:
    """What the composition root provides: how workers start, and what the machine offers.

    source: identity of the sources, for what a run records of itself; empty in tests.
    """

    launcher: Callable[[RunManifest], Launcher]
    machine: Callable[[], Machine]
    watch: LoadWatch = unwatched
    source: str = ""


@contextmanager
def running_model(
    setup: ModelSetup, manifest: RunManifest, bindings: ModelBindings, recorder: Recorder
) -> Iterator[ModelSession]:
    """A loaded model. On leaving, every process is gone and reaped.

    Raises PeerError, with how the worker that failed ended and what it wrote last; also for one
    that does not leave cleanly after a clean session (docs/spec/session.md S2).
    """
    with LocalRanks(manifest, bindings.launcher(manifest)) as ranks:
        try:
            links = ranks.connect(recorder).links
            session = ModelSession(
                setup,
                links,
                manifest.deadlines,
                first_epoch=manifest.epoch,
                sum_order=manifest.sum_order,
            )
            with bindings.watch(setup, ranks.pids):
                session.load()
            yield session
            session.close()
        except PeerError as failure:
            raise explained(failure, ranks.stop(LAST_WORDS_MS)) from None
        _demand_clean_exits(ranks.stop(manifest.deadlines.close_ms))


def explained(failure: PeerError, exits: Sequence[WorkerExit]) -> PeerError:
    """The failure, and how the process of the rank it names ended, if by itself."""
    for worker in exits:
        # Of a worker that ended before HELLO the failure says so already.
        if worker.rank == failure.rank and not worker.killed and _end(worker) not in str(failure):
            message = f"{failure.message}; its process {_end(worker)}"
            return failure.reworded(message)
    return failure


def _demand_clean_exits(exits: Sequence[WorkerExit]) -> None:
    for worker in exits:
        if worker.killed or worker.status != 0:
            how = "had to be killed" if worker.killed else _end(worker)
            message = f"its process {how} after the session"
            raise ProtocolError("closed", message, rank=worker.rank, phase=CLOSE_PHASE)


def _end(worker: WorkerExit) -> str:
    """The exit status and the last line of standard error."""
    words = printable(worker.last_words).strip().splitlines()
    return f"ended with status {worker.status}" + (f": {words[-1]}" if words else "")
