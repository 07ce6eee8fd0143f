"""A model's ranks for a service: started, watched, loaded, and ended when one of them fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from coordinator.engine_ranks import LinkedRanks
from coordinator.local_ranks import LocalRanks
from coordinator.model_run import LAST_WORDS_MS, ModelBindings, explained
from coordinator.model_session import ModelSession
from coordinator.model_setup import ModelSetup
from coordinator.rank_watch import watch
from coordinator.wake import Wake
from errors import PeerError
from manifest.run_manifest import RunManifest
from wire.recorder import Recorder


@dataclass(frozen=True)
class ServedModel:
    """A loaded model. kill: ends the processes at once; may be called by any thread.

    session: for what it tells; steps go through `ranks`.
    """

    ranks: LinkedRanks
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
) -> Iterator[ServedModel]:
    """On leaving, every process is gone and reaped. Raises PeerError when the load fails.

    killable: given, before the first process is started, what `ServedModel.kill` is later.
    """
    with LocalRanks(manifest, bindings.launcher(manifest)) as processes:
        killable(processes.kill)

        def end(cause: PeerError) -> PeerError:
            return explained(cause, processes.stop(LAST_WORDS_MS))

        try:
            links = processes.connect(recorder).links
            watch(links)
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
            ranks = LinkedRanks(session, links, wake, processes.pids, end)
            yield ServedModel(ranks, session, wake, processes.kill)
        finally:
            session.close()
            wake.close()
