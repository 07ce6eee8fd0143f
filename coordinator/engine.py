"""The serving loop: takes what front ends say, runs one step after the other, publishes updates.

One thread runs it; front ends talk to it through an Inbox and their outboxes, and read `snapshot`.
The first failure of a rank is kept, ends every live request once, and ends those that come later
at once. It must not know sockets, processes or HTTP; time comes from the clock it is given.
Clauses: docs/spec/plan.md L13 to L19, docs/spec/service.md V1 to V9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from coordinator.engine_inbox import End, Inbox, Outbox, Stop, Submit
from coordinator.request import Finished, RequestEvent, Update
from coordinator.scheduler import Scheduler, Snapshot
from coordinator.step_result import StepResult
from errors import PeerError
from program.artifacts import SampledToken
from program.plan import StepPlan
from program.step_report import StepReport

# Where nothing bounds a wait but the inbox, it is looked at this often all the same.
_FAR_S: Final = 3600.0


@dataclass(frozen=True)
class RankStatus:
    """load: what the rank's load reported. The digests are those of its last step, if any."""

    rank: int
    pid: int | None
    load: Mapping[str, object]
    state_digest: str | None
    hidden_digest: str | None


class Ranks(Protocol):
    """A loaded model over its ranks, as the engine uses it."""

    def step(self, plan: StepPlan, meanwhile: Callable[[], None]) -> StepReport:
        """Run one step on all ranks; the primary rank's report. Raises PeerError.

        meanwhile: called once the ranks compute, unless the step has failed before.
        """

    def wait(self, deadline: float) -> None:
        """Until the inbox wakes the engine, or the deadline.

        Raises PeerError as soon as a rank has gone or says anything, because nothing is due.
        """

    def retire(self, cause: PeerError) -> PeerError:
        """After a failure: end every rank, within a bound; the cause with the rank's last words."""

    def status(self) -> tuple[RankStatus, ...]:
        """One entry per rank, in rank order."""


@dataclass(frozen=True)
class Failure:
    """The first failure. step: the step that was running, None when it came between steps."""

    cause: PeerError
    step: int | None


@dataclass(frozen=True)
class EngineSnapshot:
    """What exists: read-only, taken before and after every step. steps: complete ones."""

    scheduler: Snapshot
    ranks: tuple[RankStatus, ...]
    steps: int
    failure: Failure | None
    stopping: bool


class Engine:
    """scheduler and the inbox's reading end are this engine's alone.

    heartbeat_s: an idle group runs an empty step that often, so that a rank that hangs is found,
    and no worker takes a quiet service for a dead one. failed: called once, after the first
    failure has ended every live request.
    """

    def __init__(
        self,
        ranks: Ranks,
        scheduler: Scheduler,
        inbox: Inbox,
        *,
        heartbeat_s: float,
        clock: Callable[[], float],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        self._ranks = ranks
        self._scheduler = scheduler
        self._inbox = inbox
        self._heartbeat_s = heartbeat_s
        self._clock = clock
        self._failed = failed
        self._outboxes: dict[int, Outbox] = {}
        # They got updates since the last flush.
        self._told: list[Outbox] = []
        self._failure: Failure | None = None
        self._steps = 0
        self._stop_at: float | None = None
        self._next_heartbeat = clock() + heartbeat_s
        self._snapshot = self._observe()

    @property
    def snapshot(self) -> EngineSnapshot:
        """The latest; may be read by any thread, also while a step runs."""
        return self._snapshot

    @property
    def failure(self) -> Failure | None:
        """The first failure, once there is one."""
        return self._failure

    @property
    def done(self) -> bool:
        """A stop was asked for, and nothing lives any more."""
        return self._stop_at is not None and self._scheduler.idle

    def run(self) -> None:
        """Serve until a stop was asked for and every request has ended."""
        while True:
            if self.turn():
                continue
            if self.done:
                return
            self.wait()

    def turn(self) -> bool:
        """Take what came and run one step, if there is one to run; whether there was."""
        self._take()
        plan = None
        if self._failure is None:
            plan = self._scheduler.plan(heartbeat=self._clock() >= self._next_heartbeat)
        self._snapshot = self._observe()
        if plan is None:
            self._flush()
            return False
        try:
            # Whoever is woken takes the interpreter's lock, and the processor: not before the ranks
            # have what they wait for.
            report = self._ranks.step(plan, self._flush)
            # Whoever left while it ran gets no token of it (plan.md L14).
            self._take()
            sampled = tuple(a for a in report.artifacts if isinstance(a, SampledToken))
            updates = self._scheduler.commit(StepResult(plan.step, sampled))
        except PeerError as cause:
            self._fail(cause, plan.step)
            return False
        self._steps += 1
        self._next_heartbeat = self._clock() + self._heartbeat_s
        self._publish(updates)
        if self._scheduler.idle or any(isinstance(update, Finished) for update in updates):
            # There may be no other step, and an answer that is whole does not depend on it.
            self._flush()
        return True

    def wait(self) -> None:
        """Until something came, a rank failed, or it is time to look again."""
        wakes = [self._clock() + _FAR_S]
        if self._failure is None:
            wakes.append(self._next_heartbeat)
        if self._stop_at is not None:
            wakes.append(self._stop_at)
        try:
            self._ranks.wait(min(wakes))
        except PeerError as cause:
            self._fail(cause, None)

    def _take(self) -> None:
        for event in self._inbox.drain():
            match event:
                case Submit(request_id, submission, outbox):
                    self._outboxes[request_id] = outbox
                    self._publish(self._scheduler.submit(request_id, submission))
                case End(request_id, kind):
                    self._publish(self._scheduler.end(request_id, kind))
                case Stop(deadline):
                    known = self._stop_at
                    self._stop_at = deadline if known is None else min(known, deadline)
        if self._stop_at is not None and self._clock() >= self._stop_at:
            for request_id in list(self._outboxes):
                self._publish(self._scheduler.end(request_id, RequestEvent.DROP))

    def _fail(self, cause: PeerError, step: int | None) -> None:
        told = self._ranks.retire(cause)
        self._failure = Failure(told, step)
        self._publish(self._scheduler.poison(told))
        self._flush()
        self._failed()

    def _publish(self, updates: Iterable[Update]) -> None:
        """What a client learns is already true in the snapshot."""
        self._snapshot = self._observe()
        for update in updates:
            outbox = self._outboxes[update.request_id]
            if isinstance(update, Finished):
                del self._outboxes[update.request_id]
            outbox.put(update)
            self._told.append(outbox)

    def _flush(self) -> None:
        told, self._told = self._told, []
        for outbox in told:
            outbox.flush()

    def _observe(self) -> EngineSnapshot:
        return EngineSnapshot(
            scheduler=self._scheduler.snapshot(),
            ranks=self._ranks.status(),
            steps=self._steps,
            failure=self._failure,
            stopping=self._stop_at is not None,
        )
