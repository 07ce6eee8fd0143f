"""A model's ranks as processes, from start to end: the context every model subcommand runs in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coordinator.local_ranks import LocalRanks
from coordinator.model_session import ModelSession
from coordinator.model_setup import Machine, ModelSetup, set_up
from coordinator.processes import Launcher
from errors import PeerError
from manifest.run_manifest import RunManifest
from wire.recorder import Recorder


@dataclass(frozen=True)
class ModelBindings:
    """What the composition root provides: how workers start, and what the machine offers."""

    launcher: Callable[[RunManifest], Launcher]
    machine: Callable[[], Machine]


@contextmanager
def running_model(
    manifest: RunManifest, bindings: ModelBindings, recorder: Recorder
) -> Iterator[tuple[ModelSession, ModelSetup]]:
    """A loaded model. On leaving, every process is gone and reaped.

    Raises ConfigError before any process starts; PeerError with a failed worker's own last words.
    """
    setup = set_up(manifest, bindings.machine)
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
            session.load()
            yield session, setup
            session.close()
        except PeerError as failure:
            ranks.stop(_LAST_WORDS_MS)
            raise _with_last_words(failure, ranks) from None


# A worker that failed closes its connection first and then says why.
_LAST_WORDS_MS = 500


def _with_last_words(failure: PeerError, ranks: LocalRanks) -> PeerError:
    words = [worker.last_words for worker in ranks.exits if worker.rank == failure.rank]
    if not words or not words[0]:
        return failure
    message = f"{failure.message}; its last words: {words[0]}"
    return type(failure)(failure.reason, message, rank=failure.rank, phase=failure.phase)
