"""How the parties of a server end together: signals, failures, mistakes of ours, a lost log."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from coordinator.fake_ranks import ListOutbox
from coordinator.interruption import SIGNALS
from coordinator.process_table import wait_until
from coordinator.request import Outcome
from coordinator.serving.app import make_app
from coordinator.serving.fake_group import Start, Watched
from coordinator.serving.health import health_routes
from coordinator.serving.http_server import HttpServer, listen
from coordinator.serving.lifecycle import Lifecycle, News, Texts
from coordinator.serving.live_server import LIMITS, OPEN, RawClient
from coordinator.serving.restarts import RestartPolicy
from coordinator.serving.served import Phase
from coordinator.submission import Submission
from errors import MisuseError, ProtocolError, TPError
from program.plan import Sampling, StepPlan

CAUSE = ProtocolError("closed", "gone", rank=1, phase="mlp")
TEXTS = Texts(listening="listening\n", ready="serving\n")
READY = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Parties:
    """A server over fake ranks, without its process. run: in this thread, to its end."""

    def __init__(
        self,
        *starts: Start,
        policy: RestartPolicy = RestartPolicy.EXIT,
        linger_s: float = 0.0,
        drain_ms: int = 20_000,
    ) -> None:
        news = News()
        self.watched = Watched(*starts, policy=policy, linger_s=linger_s, also=news.set)
        self.backend = self.watched.backend
        self.log = io.StringIO()
        limits = replace(LIMITS, request_ms=20_000)
        app = make_app(health_routes(self.backend, lambda: True), OPEN, limits)
        self.server = HttpServer(app, limits, flush_ms=1000)
        self.listener: socket.socket = listen("127.0.0.1", 0)
        self.port: int = self.listener.getsockname()[1]
        self._parties = Lifecycle(
            self.backend, self.server, None, news, drain_ms=drain_ms, texts=TEXTS, log=self.log
        )

    def submit(self, max_tokens: int = 2) -> ListOutbox:
        outbox = ListOutbox()
        self.backend.submit(Submission((1, 2), max_tokens, Sampling()), outbox)
        return outbox

    def ready(self) -> dict[str, object]:
        client = RawClient(self.port)
        page = json.loads(client.ask(READY).body)
        client.close()
        assert isinstance(page, dict)
        return page

    def run(self) -> int:
        return self._parties.run(self.listener)


def then(parties: Parties, phase: Phase, action: Callable[[], object]) -> list[BaseException]:
    """Once it is in that phase, in another thread; what went wrong in it."""
    wrong: list[BaseException] = []

    def wait_and_act() -> None:
        try:
            parties.watched.reach(phase)
            action()
        except BaseException as failure:
            wrong.append(failure)
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_and_act, daemon=True).start()
    return wrong


def send(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    threads = set(threading.enumerate())
    yield
    assert wait_until(lambda: set(threading.enumerate()) <= threads)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_it_and_leaves_the_signals_as_they_were(number: signal.Signals) -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    parties = Parties()

    def act() -> None:
        assert wait_until(lambda: "serving" in parties.log.getvalue())
        send(number)

    wrong = then(parties, Phase.SERVING, act)
    assert (parties.run(), wrong) == (0, [])
    assert [signal.getsignal(one) for one in SIGNALS] == before
    assert parties.log.getvalue().splitlines()[:2] == ["listening", "serving"]
    assert Phase.STOPPING in parties.watched.phases
    with pytest.raises(ConnectionRefusedError):
        RawClient(parties.port)


def test_a_signal_while_it_loads() -> None:
    parties = Parties(Start(waits=True))
    wrong = then(parties, Phase.LOADING, lambda: send(signal.SIGTERM))
    assert (parties.run(), wrong) == (0, [])
    assert "serving" not in parties.log.getvalue()


def test_what_runs_may_finish() -> None:
    parties = Parties()
    outboxes: list[ListOutbox] = []

    def act() -> None:
        parties.watched.groups.opened[0].during = lambda plan: time.sleep(0.01)
        outboxes.append(parties.submit(20))
        send(signal.SIGTERM)
        parties.watched.reach(Phase.STOPPING)
        assert parties.ready()["ok"] is False

    wrong = then(parties, Phase.SERVING, act)
    assert (parties.run(), wrong) == (0, [])
    assert outboxes[0].ends[0].outcome is Outcome.LENGTH


def hang(parties: Parties) -> ListOutbox:
    (group,) = parties.watched.groups.opened
    group.during = group.hang
    outbox = parties.submit()
    assert wait_until(lambda: bool(group.plans))
    return outbox


@pytest.mark.parametrize("signals", [1, 2])
def test_a_step_that_hangs_is_killed(signals: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the drain and the release; the second signal ends the drain."""
    monkeypatch.setattr("coordinator.serving.lifecycle.default_ms", lambda name: 200)
    parties = Parties(drain_ms=100 if signals == 1 else 600_000)
    outboxes: list[ListOutbox] = []

    def act() -> None:
        outboxes.append(hang(parties))
        for _ in range(signals):
            send(signal.SIGTERM)
            time.sleep(0.1)

    wrong = then(parties, Phase.SERVING, act)
    assert (parties.run(), wrong) == (3, [])
    assert outboxes[0].ends[0].outcome is Outcome.FAILED
    assert "failed in step 0" in parties.log.getvalue()


def test_a_failure_can_be_read_and_then_ends_it() -> None:
    parties = Parties(linger_s=1.5)

    def act() -> None:
        parties.watched.groups.opened[0].fail_while_idle(CAUSE)
        parties.watched.reach(Phase.FAILED)
        reason = parties.ready()["reason"]
        assert isinstance(reason, dict)
        assert (reason["code"], reason["rank"]) == (CAUSE.code, 1)

    wrong = then(parties, Phase.SERVING, act)
    assert (parties.run(), wrong) == (3, [])
    assert "failed between steps" in parties.log.getvalue()


def test_a_restart_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coordinator.serving.restarts.FIRST_DELAY_MS", 300)
    parties = Parties(policy=RestartPolicy.ON_FAILURE)

    def act() -> None:
        assert wait_until(lambda: "serving\n" in parties.log.getvalue())
        parties.watched.groups.opened[0].fail_while_idle(CAUSE)
        parties.watched.reach(Phase.SERVING, times=2)
        assert wait_until(lambda: parties.log.getvalue().count("serving\n") == 2)
        send(signal.SIGTERM)

    wrong = then(parties, Phase.SERVING, act)
    assert (parties.run(), wrong) == (0, [])
    log = parties.log.getvalue()
    assert log.index("failed between steps") < log.index("starting the ranks again: restart 1")


@pytest.mark.parametrize("crash", [MisuseError("planted"), TPError("process.start", "planted")])
def test_what_prevents_the_start_is_raised(crash: Exception) -> None:
    parties = Parties(Start(refuses=crash))
    with pytest.raises(type(crash), match="planted"):
        parties.run()


def test_a_mistake_of_ours_in_a_step_is_raised() -> None:
    parties = Parties()

    def mistake(plan: StepPlan) -> None:
        raise MisuseError("planted")

    def act() -> None:
        parties.watched.groups.opened[0].during = mistake
        parties.submit()

    wrong = then(parties, Phase.SERVING, act)
    with pytest.raises(MisuseError):
        parties.run()
    assert wrong == []
    assert parties.watched.groups.open_now == 0


def test_a_mistake_of_ours_in_the_server_ends_the_ranks_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parties = Parties()

    async def mistake(counter: int) -> bool:
        if parties.backend.status().phase is Phase.SERVING:
            raise MisuseError("planted")
        return False

    monkeypatch.setattr(parties.server, "on_tick", mistake)
    with pytest.raises(MisuseError):
        parties.run()
    assert parties.watched.groups.open_now == 0
    assert parties.backend.ended


def test_a_log_that_can_not_be_written() -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    parties = Parties()
    parties._parties._log = Full()
    wrong = then(parties, Phase.SERVING, lambda: send(signal.SIGTERM))
    assert (parties.run(), wrong) == (0, [])
