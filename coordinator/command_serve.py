"""`serve`: ranks, engine and control socket put together, and taken apart in order.

Three parties: the engine's thread talks to the ranks; this thread talks to clients and takes
signals; the processes of the ranks are ended by whoever sees the end first, within a bound.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from types import FrameType
from typing import Final, TextIO

from coordinator.deadlines import default_ms, render_deadlines
from coordinator.engine import Engine, Failure
from coordinator.engine_inbox import Inbox
from coordinator.interruption import SIGNALS
from coordinator.model_run import ModelBindings
from coordinator.model_setup import set_up
from coordinator.scheduler import Scheduler
from coordinator.service import ControlService
from coordinator.service_options import ServeOptions
from coordinator.service_run import ServedModel, served_model
from coordinator.wake import Wake
from errors import ConfigError, MisuseError
from program.plan import PlanLimits
from wire.recorder import Recorder
from wire.socket_pipe import Listener

_LOOK_S: Final = 3600.0


def serve(options: ServeOptions, bindings: ModelBindings, log: TextIO) -> int:
    """Serves until a signal; the exit code: 0, or that of the failure that stopped the ranks.

    Raises ConfigError before anything is started, PeerError when the load fails.
    """
    manifest = options.manifest
    if options.control is None:
        raise MisuseError("without a control socket nobody could reach it")
    if manifest.model is None:
        raise ConfigError.single("program", manifest.program, "is no model program")
    setup = set_up(manifest, bindings.machine)
    scheduler = Scheduler(
        setup.capacity.limits,
        step_tokens=manifest.model.max_step_tokens,
        waiting_max=options.waiting_max,
    )
    say(log, render_deadlines(settings_ms(options)))
    with (
        closing(Listener(options.control)) as listener,
        closing(Wake()) as wake,
        served_model(setup, manifest, bindings, Recorder(keep_bytes=False)) as model,
    ):
        inbox = Inbox(options.waiting_max, model.wake.set)
        engine = Engine(
            model.ranks,
            scheduler,
            inbox,
            heartbeat_s=options.heartbeat_ms / 1000,
            clock=time.monotonic,
            failed=wake.set,
        )
        service = ControlService(
            listener, inbox, setup.capacity.limits, lambda: engine.snapshot, wake
        )
        with closing(service), Serving(engine, model, inbox, wake) as serving:
            serving.until_stopped(service, options, log)
    failure = engine.failure
    return 0 if failure is None else failure.cause.exit_code


def settings_ms(options: ServeOptions) -> dict[str, int]:
    """The settable waits in force, by their names in the table."""
    deadlines = options.manifest.deadlines
    http = options.http
    settings = {
        "handshake": deadlines.handshake_ms,
        "load": deadlines.load_ms,
        "phase": deadlines.phase_ms,
        "send": deadlines.send_ms,
        "close": deadlines.close_ms,
        "heartbeat": options.heartbeat_ms,
        "drain": options.drain_ms,
    }
    if http is not None:
        settings |= {"queue": http.queue_ms, "linger": http.linger_ms, "request": http.request_ms}
    return settings


def ready_line(limits: PlanLimits, options: ServeOptions) -> str:
    """Said once the first request could be served."""
    return (
        f"serving at {options.control}: {limits.slots} requests at once, {limits.pages} pages of "
        f"{limits.page_tokens} tokens, {options.waiting_max} may wait\n"
    )


class Serving:
    """The engine's thread, from start to end, and the signals meanwhile."""

    def __init__(self, engine: Engine, model: ServedModel, inbox: Inbox, wake: Wake) -> None:
        self._engine = engine
        self._model = model
        self._inbox = inbox
        self._wake = wake
        self._crash: BaseException | None = None
        self._ended = False
        self._signals = 0
        self._told: Failure | None = None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def __enter__(self) -> Serving:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """However this thread leaves, the engine's has ended first."""
        self._inbox.stop(time.monotonic())
        if not self._ended:
            self._model.kill()
        self._thread.join()

    def until_stopped(self, service: ControlService, options: ServeOptions, log: TextIO) -> None:
        """Pump the socket until the engine has ended after a signal."""
        drain_s, kill_at = options.drain_ms / 1000, None
        with signals_taken(self._on_signal):
            # From here on a signal finds everything in place.
            say(log, ready_line(self._model.session.limits, options))
            while not self._ended:
                now = time.monotonic()
                if self._signals and kill_at is None:
                    say(log, f"stopping: requests have {drain_s:g} s to finish\n")
                    service.refuse_newcomers()
                    self._inbox.stop(now + drain_s)
                    kill_at = now + drain_s + default_ms("release") / 1000
                if self._signals > 1:
                    self._inbox.stop(now)
                    self._signals = 1
                    kill_at = now + default_ms("release") / 1000
                if kill_at is not None and now >= kill_at:
                    self._model.kill()
                service.pump(now + _LOOK_S if kill_at is None else max(kill_at, now + 0.1))
                self._tell_failure(log)
        service.flush(time.monotonic() + default_ms("flush") / 1000)
        if self._crash is not None:
            raise self._crash

    def _run(self) -> None:
        try:
            self._engine.run()
        except BaseException as crash:
            # A mistake of ours: it ends the service, and its thread must not hide it.
            self._crash = crash
        finally:
            # Before the wake: the other thread looks at once, and this one is then still alive.
            self._ended = True
            self._wake.set()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._wake.set()

    def _tell_failure(self, log: TextIO) -> None:
        failure = self._engine.failure
        if failure is not None and self._told is None:
            self._told = failure
            say(log, f"failed {when(failure)}: {failure.cause.diagnostics()}\n")


def when(failure: Failure) -> str:
    return "between steps" if failure.step is None else f"in step {failure.step}"


@contextmanager
def signals_taken(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """The signals that end a run go to `handler`; one that the caller ignores stays ignored."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, known in before.items():
        if known is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)


def say(log: TextIO, text: str) -> None:
    """At once. A log that can't be written must not end the service: that is lost."""
    with suppress(OSError):
        log.write(text)
        log.flush()
