"""A rank that dies or stops, idle or in a stream: what health, streams and the exit code say."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any, Final

import pytest

from coordinator.gates.http_checks import demand_broken_off
from coordinator.gates.http_mutants import ends_well, nobody_failed, same_epoch
from coordinator.gates.http_serving import (
    DONE,
    SLOW_S,
    SLOW_WORKER,
    HttpServing,
    http_serving,
    planted,
    starting,
)
from coordinator.process_table import process_state, wait_until

# Enough for a healthy rank on a busy machine, and not too long to wait for.
QUICK: Final = ("--phase-ms", "1500", "--send-ms", "1500", "--heartbeat-ms", "500")
# Until the test ends it.
LINGER: Final = ("--linger-ms", "600000")


def kill(service: HttpServing, rank: int, number: signal.Signals) -> float:
    os.kill(service.pids()[rank], number)
    return time.monotonic()


def not_ready(service: HttpServing) -> Any:
    """The first reason, once there is one."""
    assert wait_until(lambda: not service.ready()["ok"])
    return service.ready()["reason"]


def test_a_rank_that_dies_while_idle() -> None:
    with http_serving(LINGER) as service:
        began = kill(service, 1, signal.SIGKILL)
        reason = not_ready(service)
        assert time.monotonic() - began < 1.0 + SLOW_S
        service.await_log("failed between steps")
        reason = service.ready()["reason"]
        assert (reason["code"], reason["rank"], reason["step"]) == ("protocol.closed", 1, None)
        status, answer = service.complete()
        assert (status, answer["error"]["code"]) == (503, "group.poisoned")
        assert (answer["error"]["rank"], DONE in service.stream(3).rest()) == (1, False)
        engine = service.ask("GET", "/v1/engine")[1]
        assert (engine["phase"], engine["failure"]["rank"]) == ("failed", 1)
        # Whoever only looks whether it lives sees that it does, until it ends.
        assert service.ask("GET", "/livez")[0] == 200
        assert service.end()[0] == 3


@pytest.mark.parametrize("rank", [pytest.param(0, marks=pytest.mark.exhaustive), 1])
def test_a_rank_that_dies_in_a_stream(rank: int) -> None:
    with http_serving(LINGER, worker_module=SLOW_WORKER) as service:
        streams = [service.stream(1000) for _ in range(3)]
        for stream in streams:
            stream.next()
        kill(service, rank, signal.SIGKILL)
        for stream in streams:
            error = demand_broken_off(stream.rest())
            assert (error["code"], error["rank"]) == ("protocol.closed", rank)
        # What a client was told is true for whoever asks then.
        reason = service.ready()["reason"]
        assert (reason["code"], reason["rank"]) == ("protocol.closed", rank)
        assert isinstance(reason["step"], int)
        assert service.end()[0] == 3


def test_a_rank_that_is_stopped_while_idle() -> None:
    """Seen at once, also where nothing is due from it for long; and no failure, if it goes on."""
    with http_serving() as service:
        expected = service.text()
        kill(service, 1, signal.SIGSTOP)
        reason = not_ready(service)
        assert (reason["code"], reason["rank"]) == ("rank.stopped", 1)
        kill(service, 1, signal.SIGCONT)
        assert wait_until(lambda: bool(service.ready()["ok"]))
        assert service.text() == expected
        assert service.end()[0] == 0


@pytest.mark.exhaustive
def test_a_rank_that_stays_stopped_while_idle() -> None:
    with http_serving([*QUICK, *LINGER]) as service:
        kill(service, 1, signal.SIGSTOP)
        service.await_log("failed in step")
        reason = service.ready()["reason"]
        assert (reason["code"], reason["rank"]) == ("deadline.receive", 1)
        assert service.end()[0] == 3


def test_a_rank_that_is_stopped_in_a_stream() -> None:
    with http_serving([*QUICK, *LINGER], worker_module=SLOW_WORKER) as service:
        stream = service.stream(1000)
        stream.next()
        kill(service, 1, signal.SIGSTOP)
        error = demand_broken_off(stream.rest())
        assert (error["code"], error["rank"]) == ("deadline.receive", 1)
        assert service.ready()["reason"]["rank"] == 1
        assert service.end()[0] == 3


def test_how_long_a_failure_can_be_read() -> None:
    for linger_s in (0, 1):
        with http_serving(["--linger-ms", str(1000 * linger_s)]) as service:
            began = kill(service, 0, signal.SIGKILL)
            assert service.wait() == 3
            assert linger_s < time.monotonic() - began < linger_s + 3.0 + SLOW_S
    with http_serving(["--linger-ms", "600000"]) as service:
        kill(service, 0, signal.SIGKILL)
        service.await_log("failed between steps")
        # A signal ends it, and what it says of the failure stays true.
        code, seconds = service.end()
        assert (code, seconds < 1.0 + SLOW_S) == (3, True)


def test_it_starts_again() -> None:
    """Under an epoch that no frame of the first ranks had, with the same answers."""
    restarts = ["--restart-policy", "on-failure"]
    with http_serving(restarts, worker_module=SLOW_WORKER) as service:
        expected = service.text()
        first = service.ready()
        stream = service.stream(1000)
        stream.next()
        kill(service, 1, signal.SIGKILL)
        demand_broken_off(stream.rest())
        reason = service.ready()["reason"]
        assert (reason["code"], reason["rank"]) == ("protocol.closed", 1)
        status, answer = service.complete()
        assert (status, answer["error"]["code"]) in {
            (503, "group.poisoned"),
            (503, "overload.loading"),
        }
        assert wait_until(lambda: bool(service.ready()["ok"]))
        second = service.ready()
        steps = service.ask("GET", "/v1/engine")[1]["steps"]
        assert second["epoch"] > first["epoch"] + len(steps)
        assert (second["restarts"], second["reason"]) == (1, None)
        pids = [rank["pid"] for rank in second["ranks"]]
        assert not set(pids) & {rank["pid"] for rank in first["ranks"]}
        assert service.text() == expected
        assert service.is_idle()
        assert service.end()[0] == 0
        assert wait_until(lambda: all(process_state(pid) is None for pid in pids))


@pytest.mark.exhaustive
@pytest.mark.parametrize("mistake", [nobody_failed, ends_well])
def test_a_failure_that_is_hidden_is_noticed(mistake: Callable[[], None]) -> None:
    with planted(mistake):
        test_a_rank_that_dies_while_idle()


@pytest.mark.exhaustive
def test_an_epoch_that_comes_again_is_noticed() -> None:
    with planted(same_epoch):
        test_it_starts_again()


def test_a_load_that_fails() -> None:
    """Its ranks can't be had in the time that they get; no second try without the policy."""
    with starting([*LINGER, "--handshake-ms", "1"]) as service:
        service.await_log("failed between steps")
        status, page = service.ask("GET", "/startupz")
        assert (status, page["ok"], page["reason"]["code"]) == (503, False, "deadline.handshake")
        assert service.end()[0] == 3
