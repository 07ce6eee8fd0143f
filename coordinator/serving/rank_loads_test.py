"""What is known of ranks from their start to their end, and of a real process by its kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from coordinator.fake_ranks import FakeClock
from coordinator.model_setup import ModelSetup
from coordinator.process_table import wait_until
from coordinator.serving.fake_group import fake_setup
from coordinator.serving.rank_loads import ProcessLook, RankLoads, look_at
from coordinator.serving.served import RankPhase

PIDS = {0: 11, 1: 12}


class Kernel:
    """Processes by id."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.found: dict[int, ProcessLook | None] = {11: ProcessLook(40, False), 12: None}
        self.entered: list[str] = []
        self.loads = RankLoads(fake_setup(), self.clock, lambda pid: self.found[pid])

    @contextmanager
    def inner(self, setup: ModelSetup, pids: Mapping[int, int]) -> Iterator[None]:
        self.entered.append("in")
        yield
        self.entered.append("out")

    def phases(self) -> list[RankPhase]:
        return [rank.phase for rank in self.loads.ranks()]

    def loaded(self) -> list[int]:
        return [rank.bytes_loaded for rank in self.loads.ranks()]


def test_from_waiting_to_gone() -> None:
    kernel = Kernel()
    kernel.found[12] = ProcessLook(50, False)
    assert kernel.phases() == [RankPhase.WAITING] * 2
    assert [rank.bytes_due for rank in kernel.loads.ranks()] == [150, 150]
    with kernel.loads.watching(kernel.inner)(fake_setup(), PIDS):
        assert kernel.phases() == [RankPhase.LOADING] * 2
        assert kernel.loaded() == [0, 0]
        kernel.clock.now = 107.0
        kernel.found |= {11: ProcessLook(100, False), 12: ProcessLook(9_000, False)}
        assert kernel.loaded() == [60, 150]
        # Growth is noticed although nobody looks.
        assert wait_until(lambda: kernel.loads.moved_at == 107.0)
    assert kernel.entered == ["in", "out"]
    kernel.loads.loaded()
    assert kernel.phases() == [RankPhase.READY] * 2
    assert kernel.loaded() == [150, 150]
    kernel.clock.now = 109.0
    kernel.loads.seen()
    assert kernel.loads.moved_at == 109.0
    assert [rank.last_seen for rank in kernel.loads.ranks()] == [109.0, 109.0]
    kernel.loads.ended()
    assert kernel.phases() == [RankPhase.GONE] * 2
    kernel.loads.reset()
    assert kernel.phases() == [RankPhase.WAITING] * 2
    assert [rank.last_seen for rank in kernel.loads.ranks()] == [None, None]


def test_a_process_that_has_gone_or_stopped() -> None:
    kernel = Kernel()
    with kernel.loads.watching(kernel.inner)(fake_setup(), PIDS):
        assert kernel.phases() == [RankPhase.LOADING, RankPhase.GONE]
    kernel.loads.loaded()
    kernel.found[11] = ProcessLook(40, True)
    assert kernel.phases() == [RankPhase.STOPPED, RankPhase.GONE]
    assert [rank.rss_bytes for rank in kernel.loads.ranks()] == [40, None]


def test_a_real_process() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command) as process:
        try:
            assert wait_until(lambda: (look_at(process.pid) or ProcessLook(0, True)).rss_bytes > 0)
            os.kill(process.pid, signal.SIGSTOP)
            assert wait_until(lambda: (look_at(process.pid) or ProcessLook(0, False)).stopped)
        finally:
            process.kill()
        # Not reaped yet, and gone all the same.
        assert wait_until(lambda: look_at(process.pid) is None)
    assert look_at(process.pid) is None
