"""Sets of ranks for tests of the backend: they load, fail and hang when a test says so."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Final, cast

from coordinator.fake_ranks import LIMITS, FakeClock, FakeRanks
from coordinator.model_setup import ModelSetup
from coordinator.serving.backend import Backend, BackendSettings, OpenRanks
from coordinator.serving.rank_loads import RankLoads
from coordinator.serving.restarts import RestartPolicy
from coordinator.serving.served import Phase
from errors import PeerError, ProtocolError
from manifest.run_manifest import RunManifest, from_flags
from program.plan import StepPlan

# Far beyond what any of these tests waits for.
PATIENCE_S: Final = 20.0
FLAGS: Final = {
    "program": "qwen35/sharded",
    "ranks": "2",
    "model.checkpoint": "/m/tiny",
    "model.max_step_tokens": "8",
}
KILLED: Final = ProtocolError("closed", "killed", rank=0, phase="load")


def fake_setup() -> ModelSetup:
    """As much of a setup as a backend reads."""
    capacity = SimpleNamespace(
        limits=LIMITS,
        ranks=(SimpleNamespace(weight_bytes=100), SimpleNamespace(weight_bytes=100)),
        state_bytes=lambda rank: 50,
    )
    config = SimpleNamespace(eos_token_ids=(3,))
    return cast(ModelSetup, SimpleNamespace(capacity=capacity, config=config))


class FakeGroup(FakeRanks):
    """One loaded set of ranks. during_retire: what happens while a failure is being dealt with."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.wake = threading.Event()
        self.killed = threading.Event()
        self.during_retire: Callable[[], None] = lambda: None

    @property
    def ranks(self) -> FakeGroup:
        return self

    def fail_while_idle(self, cause: PeerError) -> None:
        self.wait_failure = cause
        self.wake.set()

    def wait(self, deadline: float) -> None:
        self.wake.wait(max(0.0, min(PATIENCE_S, deadline - time.monotonic())))
        self.wake.clear()
        if self.wait_failure is not None:
            raise self.wait_failure

    def retire(self, cause: PeerError) -> PeerError:
        self.during_retire()
        return super().retire(cause)

    def hang(self, plan: StepPlan) -> None:
        """As `during`: a step that ends when the ranks are killed."""
        self.killed.wait(PATIENCE_S)
        raise ProtocolError("closed", "killed", rank=0, phase="plan")


@dataclass
class Start:
    """How the next set of ranks starts. refuses: raised by its load. waits: until killed."""

    refuses: BaseException | None = None
    waits: bool = False


class FakeGroups:
    """Every set of ranks that a backend opened. starts: of those to come; then all start well."""

    def __init__(self, *starts: Start) -> None:
        self.opened: list[FakeGroup] = []
        self.manifests: list[RunManifest] = []
        self.open_now = 0
        self._starts = list(starts)

    @contextmanager
    def open(
        self, manifest: RunManifest, killable: Callable[[Callable[[], None]], None]
    ) -> Iterator[OpenRanks]:
        group = FakeGroup()
        self.manifests.append(manifest)
        killable(group.killed.set)
        start = self._starts.pop(0) if self._starts else Start()
        if start.waits:
            group.killed.wait(PATIENCE_S)
            raise KILLED
        if start.refuses is not None:
            raise start.refuses
        self.opened.append(group)
        self.open_now += 1
        try:
            yield group
        finally:
            self.open_now -= 1


class Watched:
    """A backend over fake groups. phases: every one it was in, as `changed` told.

    also: who else is told.
    """

    def __init__(
        self,
        *starts: Start,
        policy: RestartPolicy = RestartPolicy.EXIT,
        linger_s: float = 0.0,
        also: Callable[[], None] = lambda: None,
    ) -> None:
        self._also = also
        self.groups = FakeGroups(*starts)
        self.phases: list[Phase] = []
        self._news = threading.Condition()
        setup = fake_setup()
        settings = BackendSettings(
            waiting_max=8, heartbeat_s=1e6, linger_s=linger_s, policy=policy, created=1
        )
        loads = RankLoads(setup, time.monotonic, lambda pid: None)
        self.backend = Backend(
            setup,
            from_flags(FLAGS),
            settings,
            self.groups.open,
            loads,
            clock=time.monotonic,
            changed=self._changed,
        )

    def _changed(self) -> None:
        with self._news:
            self.phases.append(self.backend.status().phase)
            self._news.notify_all()
        self._also()

    def reach(self, phase: Phase, times: int = 1) -> None:
        """Wait until it was in that phase, so many times."""
        with self._news:
            if not self._news.wait_for(lambda: self.phases.count(phase) >= times, PATIENCE_S):
                raise AssertionError(f"never {phase}: {self.phases}, {self.backend.crash!r}")

    def end(self) -> None:
        """However it is: nothing is left."""
        backend = self.backend
        if backend.status().phase is Phase.STARTING:
            return  # never started
        backend.stop(time.monotonic())
        deadline = time.monotonic() + PATIENCE_S
        while not backend.ended and time.monotonic() < deadline:
            backend.kill()
            time.sleep(0.01)
        backend.join()
        if self.groups.open_now:
            raise AssertionError("ranks are left")
