"""The served model as front ends see it, from the first load to the end, over all restarts.

One thread owns it: it starts the ranks, loads them, runs the engine, and after a failure ends or
starts a fresh set of ranks under an epoch that no earlier one used. Front ends call the rest. It
must not know HTTP. docs/spec/http.md H10 to H14.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from coordinator.engine import Engine, EngineSnapshot, Failure, Ranks
from coordinator.engine_inbox import Inbox, Outbox
from coordinator.model_setup import ModelSetup
from coordinator.request import RequestEvent
from coordinator.scheduler import Scheduler
from coordinator.serving.phases import PhaseEvent, following
from coordinator.serving.rank_loads import RankLoads
from coordinator.serving.restarts import RestartPolicy, Restarts
from coordinator.serving.served import Phase, Status
from coordinator.submission import Submission
from errors import ConfigError, MisuseError, OverloadError, PeerError, PoisonedError
from manifest.run_manifest import RunManifest
from program.plan import PlanLimits


class Waker(Protocol):
    """Ends the engine's wait."""

    def set(self) -> None: ...


class OpenRanks(Protocol):
    """Loaded ranks, as `service_run.ServedModel`."""

    @property
    def ranks(self) -> Ranks: ...

    @property
    def wake(self) -> Waker: ...


# Starts the ranks of a manifest and loads them. Gives its second argument, before the first process
# is started, a function that kills them, which any thread may call.
OpenModel = Callable[
    [RunManifest, Callable[[Callable[[], None]], None]], AbstractContextManager[OpenRanks]
]


@dataclass(frozen=True)
class BackendSettings:
    """Of one service. linger_s: how long a failure can be read before the end."""

    waiting_max: int
    heartbeat_s: float
    linger_s: float
    policy: RestartPolicy
    created: int


class Backend:
    """Implements `served.Served`. changed: called after every change of phase, by any thread.

    crash: a mistake of ours, or a refusal to start, that ended the thread. failures: all of them,
    oldest first, for whoever tells them, who takes them out.
    """

    def __init__(
        self,
        setup: ModelSetup,
        manifest: RunManifest,
        settings: BackendSettings,
        open_model: OpenModel,
        loads: RankLoads,
        *,
        clock: Callable[[], float],
        changed: Callable[[], None],
    ) -> None:
        if manifest.model is None:
            raise ConfigError.single("program", manifest.program, "is no model program")
        self.crash: BaseException | None = None
        self.failures: deque[Failure] = deque()
        self._setup = setup
        self._manifest = manifest
        self._step_tokens = manifest.model.max_step_tokens
        self._model_id = Path(manifest.model.checkpoint).name
        self._settings = settings
        self._open_model = open_model
        self._loads = loads
        self._clock = clock
        self._changed = changed
        self._inbox = Inbox(settings.waiting_max, self._wake_engine)
        self._restarts = Restarts(settings.policy)
        # Over everything below; held for moments only, never over a wait.
        self._lock = threading.RLock()
        self._phase = Phase.STARTING
        self._epoch = manifest.epoch
        self._engine: Engine | None = None
        self._waker: Waker | None = None
        self._kill: Callable[[], None] = _nothing
        self._failure: Failure | None = None
        self._ready_once = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    @property
    def model_id(self) -> str:
        return self._model_id

    @property
    def program(self) -> str:
        return self._manifest.program

    @property
    def created(self) -> int:
        return self._settings.created

    @property
    def limits(self) -> PlanLimits:
        return self._setup.capacity.limits

    @property
    def eos_token_ids(self) -> tuple[int, ...]:
        return tuple(self._setup.config.eos_token_ids)

    @property
    def snapshot(self) -> EngineSnapshot | None:
        """Of the running engine, or the last one; None before the first load has ended."""
        engine = self._engine
        return None if engine is None else engine.snapshot

    @property
    def ready_once(self) -> bool:
        """The first load has ended well."""
        return self._ready_once

    def clock(self) -> float:
        return self._clock()

    def submit(self, submission: Submission, outbox: Outbox) -> int:
        """See `Served.submit`."""
        with self._lock:
            match self._phase:
                case Phase.FAILED | Phase.ENDED if self._failure is not None:
                    raise PoisonedError(self._failure.cause)
                case Phase.SERVING | Phase.STOPPING | Phase.ENDED:
                    # The inbox knows of the stop.
                    return self._inbox.submit(submission, outbox)
                case phase:
                    raise OverloadError("overload.loading", f"the service is {phase.value}")

    def end(self, request_id: int, event: RequestEvent) -> None:
        """See `Served.end`. Without an engine no request lives."""
        with self._lock:
            if self._phase in (Phase.SERVING, Phase.STOPPING):
                self._inbox.end(request_id, event)

    def status(self) -> Status:
        """See `Served.status`; never waits for a step."""
        with self._lock:
            phase, epoch, engine, failure = self._phase, self._epoch, self._engine, self._failure
            restarts = self._restarts.count
        snapshot = None if engine is None else engine.snapshot
        # Whoever was told of a failure finds it here, also before the phase has moved.
        if failure is None and snapshot is not None:
            failure = snapshot.failure
        return Status(
            phase=phase,
            epoch=epoch,
            ranks=self._loads.ranks(),
            snapshot=snapshot,
            failure=failure,
            progress_at=self._loads.moved_at,
            restarts=restarts,
        )

    def start(self) -> None:
        """From here on the ranks are being started."""
        self._thread.start()

    def stop(self, deadline: float) -> bool:
        """No more requests; those that live have until then. May be called again, with less.

        Whether an engine runs. Without one there is nothing to wait for, and `kill` ends it.
        """
        with self._lock:
            # Before anybody looks for it in the inbox.
            self._stopping.set()
            self._inbox.stop(deadline)
            self._advance(PhaseEvent.STOP)
            runs = self._waker is not None
        self._changed()
        return runs

    def kill(self) -> None:
        """End the processes of the ranks at once; until the thread has ended, call again."""
        with self._lock:
            self._kill()

    @property
    def ended(self) -> bool:
        """Every process is gone and reaped, and nothing more will happen."""
        return self._phase is Phase.ENDED

    def join(self) -> None:
        """After `stop` or the end: wait for the thread, whose waits are all bounded."""
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            self._supervise()
        except BaseException as crash:
            # It ends the service, and its thread must not hide it.
            self.crash = crash
        finally:
            self._loads.ended()
            with self._lock:
                self._inbox.stop(self._clock())
                self._advance(PhaseEvent.END)
            self._changed()

    def _supervise(self) -> None:
        manifest = self._manifest
        while True:
            self._one_epoch(manifest)
            if self._stopping.is_set() or self._failure is None:
                return
            delay_s = self._restarts.after_failure(self._clock())
            if delay_s is None:
                self._stopping.wait(self._settings.linger_s)
                return
            self._move(PhaseEvent.RESTART)
            if self._stopping.wait(delay_s):
                return
            steps = 0 if self._engine is None else self._engine.snapshot.steps
            # The failed step has used an epoch of its own (docs/spec/session.md S3).
            manifest = replace(manifest, epoch=manifest.epoch + steps + 1)

    def _one_epoch(self, manifest: RunManifest) -> None:
        """One set of ranks, from its start until all of it is gone."""
        self._loads.reset()
        with self._lock:
            self._epoch = manifest.epoch
        self._move(PhaseEvent.LOAD)
        try:
            with ExitStack() as stack:
                model = stack.enter_context(self._open_model(manifest, self._can_be_killed))
                stack.callback(self._detach)
                self._serve(self._attach(model))
        except PeerError as cause:
            # Of the load alone: in a step the engine keeps it.
            self._fail(Failure(cause, None))
        finally:
            self._can_be_killed(_nothing)
            self._loads.ended()

    def _serve(self, engine: Engine) -> None:
        self._move(PhaseEvent.LOADED)
        while not engine.done:
            if engine.turn():
                self._loads.seen()
            elif engine.failure is not None:
                break
            elif not engine.done:
                engine.wait()
        # Requests that came in while the failure was being told get it too; no others follow.
        if engine.failure is not None:
            engine.turn()

    def _attach(self, model: OpenRanks) -> Engine:
        engine = Engine(
            model.ranks,
            Scheduler(
                self.limits,
                step_tokens=self._step_tokens,
                waiting_max=self._settings.waiting_max,
            ),
            self._inbox,
            heartbeat_s=self._settings.heartbeat_s,
            clock=self._clock,
            failed=self._engine_failed,
        )
        self._loads.loaded()
        with self._lock:
            self._engine, self._waker = engine, model.wake
            self._failure = None
            self._ready_once = True
        return engine

    def _detach(self) -> None:
        """What ends a wait is about to be closed; from here on nobody waits."""
        with self._lock:
            self._waker = None

    def _engine_failed(self) -> None:
        engine = self._engine
        if engine is None or engine.failure is None:
            raise MisuseError("a failure without one")
        self._loads.ended()
        self._fail(engine.failure)

    def _fail(self, failure: Failure) -> None:
        """Kept unless the service is told to end while it loads: then it was us."""
        with self._lock:
            if self._stopping.is_set() and failure is not self._engine_failure():
                return
            self._failure = failure
            self.failures.append(failure)
            self._advance(PhaseEvent.FAIL)
        self._changed()

    def _engine_failure(self) -> Failure | None:
        return None if self._engine is None else self._engine.failure

    def _can_be_killed(self, kill: Callable[[], None]) -> None:
        with self._lock:
            self._kill = kill

    def _wake_engine(self) -> None:
        """Called by the inbox, and so with the lock held."""
        if self._waker is not None:
            self._waker.set()

    def _move(self, event: PhaseEvent) -> None:
        with self._lock:
            self._advance(event)
        self._changed()

    def _advance(self, event: PhaseEvent) -> None:
        self._phase = following(self._phase, event)


def _nothing() -> None:
    """No process can be killed."""
