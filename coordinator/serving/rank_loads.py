"""What is known of each rank's process, from its start to its end; for health and the page.

A loading rank says nothing until it is done, so what it has loaded is estimated from how much its
resident size has grown. Nothing depends on what is shown here but what health says.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from coordinator.load_progress import bytes_due
from coordinator.model_run import LoadWatch
from coordinator.model_setup import ModelSetup
from coordinator.serving.served import RankLoad, RankPhase

_REFRESH_S: Final = 0.2
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# proc(5): the fields after the name in parentheses; the first is the state.
_RSS_FIELD: Final = 21


@dataclass(frozen=True)
class ProcessLook:
    """stopped: by a signal or a tracer."""

    rss_bytes: int
    stopped: bool


def look_at(pid: int) -> ProcessLook | None:
    """What the kernel says of a process; None when it is gone, or only waits to be reaped."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    if fields[0] in "ZX":
        return None
    return ProcessLook(int(fields[_RSS_FIELD]) * _PAGE_BYTES, fields[0] in "tT")


@dataclass(frozen=True)
class _Known:
    """One rank. base_bytes: its resident size when its load began."""

    pid: int | None = None
    phase: RankPhase = RankPhase.WAITING
    base_bytes: int = 0
    due_bytes: int = 0


class RankLoads:
    """look: how a process is looked at. The last one to call is right: values are replaced."""

    def __init__(
        self,
        setup: ModelSetup,
        clock: Callable[[], float],
        look: Callable[[int], ProcessLook | None] = look_at,
    ) -> None:
        self._due = [bytes_due(setup, rank) for rank in range(len(setup.capacity.ranks))]
        self._clock = clock
        self._look = look
        self._grown = 0
        self.moved_at = clock()
        self._last_seen: float | None = None
        self._known: tuple[_Known, ...] = ()
        self.reset()

    def reset(self) -> None:
        """A new set of ranks is about to start; nothing is known of it."""
        self._known = tuple(_Known(due_bytes=due) for due in self._due)
        self._last_seen = None
        self._grown = 0
        self.moved_at = self._clock()

    def watching(self, inner: LoadWatch) -> LoadWatch:
        """A watch over the load, which also enters `inner`."""

        @contextmanager
        def watch(setup: ModelSetup, pids: Mapping[int, int]) -> Iterator[None]:
            self._begin(pids)
            done = threading.Event()
            thread = threading.Thread(target=self._sample, args=(done,), name="load-watch")
            thread.start()
            try:
                with inner(setup, pids):
                    yield
            finally:
                done.set()
                thread.join()

        return watch

    def loaded(self) -> None:
        """Every rank has said so."""
        self._known = tuple(replace(known, phase=RankPhase.READY) for known in self._known)
        self.seen()

    def seen(self) -> None:
        """Every rank has just answered: a step is complete."""
        self.moved_at = self._last_seen = self._clock()

    def ended(self) -> None:
        """The processes have been ended."""
        self._known = tuple(replace(known, phase=RankPhase.GONE) for known in self._known)

    def ranks(self) -> tuple[RankLoad, ...]:
        """All ranks as they are now; costs one small read per rank."""
        return tuple(self._rank(rank, known) for rank, known in enumerate(self._known))

    def _rank(self, rank: int, known: _Known) -> RankLoad:
        found = None
        if known.pid is not None and known.phase is not RankPhase.GONE:
            found = self._look(known.pid)
        phase = known.phase
        if known.pid is not None and found is None:
            phase = RankPhase.GONE
        elif found is not None and found.stopped:
            phase = RankPhase.STOPPED
        loaded = 0
        if known.phase is RankPhase.READY:
            loaded = known.due_bytes
        elif found is not None:
            loaded = min(max(0, found.rss_bytes - known.base_bytes), known.due_bytes)
        return RankLoad(
            rank=rank,
            pid=known.pid,
            phase=phase,
            bytes_loaded=loaded,
            bytes_due=known.due_bytes,
            rss_bytes=None if found is None else found.rss_bytes,
            last_seen=self._last_seen,
        )

    def _begin(self, pids: Mapping[int, int]) -> None:
        fresh = []
        for rank, due in enumerate(self._due):
            pid = pids.get(rank)
            found = None if pid is None else self._look(pid)
            fresh.append(
                _Known(pid, RankPhase.LOADING, 0 if found is None else found.rss_bytes, due)
            )
        self._known = tuple(fresh)

    def _sample(self, done: threading.Event) -> None:
        while not done.wait(_REFRESH_S):
            grown = sum(rank.bytes_loaded for rank in self.ranks())
            if grown > self._grown:
                self._grown = grown
                self.moved_at = self._clock()
