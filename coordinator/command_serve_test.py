"""How the parties of a service end together: a mistake of ours, a bound that runs out, a signal."""

from __future__ import annotations

import io
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from coordinator.arguments_serve import read_serve
from coordinator.command_serve import Serving, say
from coordinator.engine import Engine
from coordinator.engine_inbox import Inbox
from coordinator.fake_ranks import LIMITS, FakeClock, FakeRanks, ListOutbox
from coordinator.interruption import SIGNALS
from coordinator.options import CallContext
from coordinator.request import Outcome
from coordinator.scheduler import Scheduler
from coordinator.service import ControlService
from coordinator.service_run import ServedModel
from coordinator.submission import Submission
from coordinator.wake import Wake
from errors import MisuseError, ProtocolError
from program.plan import Sampling, StepPlan
from wire.address import Address
from wire.socket_pipe import Listener

CONTEXT = CallContext(Path("/call"), model=Path("/model"))


class Ranks(FakeRanks):
    """Idle until the engine is wanted; a step can hang until the ranks are killed."""

    def __init__(self) -> None:
        super().__init__(FakeClock())
        self.wanted = threading.Event()
        self.killed = threading.Event()
        self.limits = LIMITS

    def wait(self, deadline: float) -> None:
        self.wanted.wait(0.5)
        self.wanted.clear()

    def hang(self, plan: StepPlan) -> None:
        self.killed.wait(30.0)
        raise ProtocolError("closed", "killed", rank=0, phase="plan")


class Parties:
    """All of a service but the real ranks. run: until it has ended."""

    def __init__(self, path: Path) -> None:
        self.ranks = Ranks()
        self.wake = Wake()
        self.inbox = Inbox(8, self.ranks.wanted.set)
        self.log = io.StringIO()
        scheduler = Scheduler(LIMITS, step_tokens=8, waiting_max=8)
        self.engine = Engine(
            self.ranks, scheduler, self.inbox, heartbeat_s=1e9, clock=time.monotonic
        )
        self.service = ControlService(
            Listener(Address(path=str(path))), self.inbox, LIMITS, self._snapshot, self.wake
        )
        model = ServedModel(
            ranks=cast(Any, self.ranks),
            session=cast(Any, self.ranks),
            wake=self.wake,
            kill=self.ranks.killed.set,
        )
        self.serving = Serving(self.engine, model, self.inbox, self.wake)

    def _snapshot(self) -> Any:
        return self.engine.snapshot

    def submit(self, max_tokens: int = 2) -> ListOutbox:
        outbox = ListOutbox()
        self.inbox.submit(Submission((1, 2), max_tokens, Sampling()), outbox)
        return outbox

    def run(self, drain_ms: int = 5000) -> None:
        argv = ["--control", "unix:s", "--drain-ms", str(drain_ms)]
        with self.serving:
            self.serving.until_stopped(self.service, read_serve(argv, CONTEXT), self.log)


@pytest.fixture
def parties() -> Iterator[Parties]:
    with tempfile.TemporaryDirectory() as name:
        made = Parties(Path(name) / "s")
        yield made
        made.service.close()
        made.wake.close()


def later(seconds: float, number: signal.Signals) -> None:
    threading.Timer(seconds, os.kill, (os.getpid(), number)).start()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_it_and_leaves_the_signals_as_they_were(
    parties: Parties, number: signal.Signals
) -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    outbox = parties.submit()
    later(0.2, number)
    parties.run()
    assert outbox.ends[0].outcome is Outcome.LENGTH
    assert [signal.getsignal(one) for one in SIGNALS] == before
    assert parties.log.getvalue().splitlines()[0].startswith("serving at")
    assert not parties.ranks.killed.is_set()


def test_a_mistake_of_ours_ends_the_service(parties: Parties) -> None:
    """It is raised, not hidden in a thread, and nobody waits for a signal."""

    def mistake(plan: StepPlan) -> None:
        raise MisuseError("planted")

    parties.ranks.during = mistake
    parties.submit()
    with pytest.raises(MisuseError):
        parties.run()


def test_a_step_that_hangs_is_killed(parties: Parties, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.command_serve.default_ms", lambda name: 300)
    parties.ranks.during = parties.ranks.hang
    outbox = parties.submit()
    later(0.2, signal.SIGTERM)
    began = time.monotonic()
    parties.run(drain_ms=100)
    assert time.monotonic() - began < 20.0
    assert parties.ranks.killed.is_set()
    assert outbox.ends[0].outcome is Outcome.FAILED
    assert "failed in step 0" in parties.log.getvalue()


def test_leaving_early_ends_the_engine_first(parties: Parties) -> None:
    """Whatever makes this thread leave: the ranks are killed and the other thread has ended."""
    parties.ranks.during = parties.ranks.hang
    parties.submit()
    with parties.serving:
        time.sleep(0.2)
    assert parties.ranks.killed.is_set()
    assert parties.engine.done


def test_a_log_that_can_not_be_written_ends_nothing() -> None:
    """Also not where it takes the text and fails when it passes it on."""

    class Full(io.StringIO):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    log = Full()
    say(log, "one\n")
    say(log, "two\n")
    assert log.getvalue() == "one\ntwo\n"
