"""A model's ranks for a service: started, watched, loaded, and ended when one of them fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coordinator.engine import Ranks
from coordinator.engine_ranks import LinkedRanks
from coordinator.local_ranks import LocalRanks
from coordinator.model_run import LAST_WORDS_MS, ModelBindings, explained
from coordinator.model_session import ModelSession
from coordinator.model_setup import ModelSetup
from coordinator.observed_ranks import ObservedRanks
from coordinator.rank_watch import watch
from coordinator.step_timing import StepObserver, StepTimer
from coordinator.wake import Wake
from errors import PeerError
from manifest.run_manifest import RunManifest
from wire.recorder import Recorder


@dataclass(frozen=True)
class ServedModel:
    """A loaded model. kill: ends the processes at once; may be called by any thread.

    session: for what it tells; steps go through `ranks`.
    """

    ranks: Ranks
    session: ModelSession
    wake: Wake
    kill: Callable[[], None]


def _unkilled(kill: Callable[[], None]) -> None:
    """Nobody ends a load early."""


@contextmanager
def served_model(
    setup: ModelSetup,
    manifest: RunManifest,
    bindings: ModelBindings,
    recorder: Recorder,
    killable: Callable[[Callable[[], None]], None] = _unkilled,
    observer: StepObserver | None = None,
) -> Iterator[ServedModel]:
    """On leaving, every process is gone and reaped. Raises PeerError when the load fails.

    killable: given, before the first process is started, what `ServedModel.kill` is later.
    observer: told of every step; None costs nothing.
    """
    with LocalRanks(manifest, bindings.launcher(manifest)) as processes:
        killable(processes.kill)

        def end(cause: PeerError) -> PeerError:
            return explained(cause, processes.stop(LAST_WORDS_MS))

        try:
            links = processes.connect(recorder).links
            timer = None if observer is None else StepTimer(time.monotonic)
            if timer is not None:
                timer.attach(links, watched=True)
            watch(links, None if timer is None else timer.arrived)
            session = ModelSession(
                setup,
                links,
                manifest.deadlines,
                first_epoch=manifest.epoch,
                sum_order=manifest.sum_order,
            )
            with bindings.watch(setup, processes.pids):
                session.load()
        except PeerError as failure:
            raise end(failure) from None
        wake = Wake()
        try:
            ranks: Ranks = LinkedRanks(session, links, wake, processes.pids, end)
            if timer is not None and observer is not None:
                session.group.reduce = timer.timed(session.group.reduce, links[0])
                ranks = ObservedRanks(ranks, len(links), timer, recorder, observer)
            yield ServedModel(ranks, session, wake, processes.kill)
        finally:
            session.close()
            wake.close()
