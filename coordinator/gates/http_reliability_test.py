"""Four bad hours of a server, each followed by a clean request; and a hundred early stops."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from coordinator.gates.http_load import ALL, LEAVING, STAYING, left_in_stream, load, stopped
from coordinator.gates.http_mutants import deaf_to_ends, endless_queue
from coordinator.gates.http_serving import (
    SLOW_WORKER,
    WORKER,
    HttpServing,
    body,
    http_serving,
    planted,
)
from coordinator.process_table import wait_until


def clean_after(service: HttpServing, scenario: Callable[[], object]) -> None:
    """Afterwards nothing lives, and a clean request has the answer that it had before."""
    expected = service.text()
    scenario()
    assert wait_until(service.is_idle), "requests, slots or pages are left"
    assert wait_until(lambda: bool(service.ready()["ok"]))
    assert service.text() == expected


@pytest.mark.exhaustive
def test_clients_that_leave() -> None:
    """In the queue, in the prefill, in the stream, and ended from elsewhere."""
    with http_serving() as service:
        ends = Counter[str]()
        clean_after(service, lambda: ends.update(load(service, LEAVING, 90, seed=3)))
        assert set(ends) == {"left", "deleted"}
        assert service.end()[0] == 0


def test_a_client_that_leaves_frees_its_slot_at_once() -> None:
    """Within steps, not at the end of what it asked for."""
    with http_serving(worker_module=SLOW_WORKER) as service:
        streams = [service.stream(200) for _ in range(8)]
        for stream in streams:
            stream.next()
        steps = service.ask("GET", "/v1/engine")[1]["steps"][-1]["step"]
        for stream in streams:
            stream.leave()
        assert wait_until(service.is_idle)
        last = service.ask("GET", "/v1/engine")[1]["steps"][-1]["step"]
        # Two hundred were asked for; what is between the looks is a matter of the machine.
        assert last - steps < 100
        assert service.end()[0] == 0


INVALID: Final[dict[str, tuple[object, int]]] = {
    "no object": ([1], 400),
    "an unknown parameter": (body(1, temprature=1), 400),
    "a wrong type": ({**body(1), "max_tokens": "x"}, 400),
    "no tokens": (body(0), 400),
    "far too many tokens": (body(1 << 40), 400),
    "a prompt of other tokens": (body(1, prompt=[1 << 20]), 400),
    "an empty prompt": (body(1, prompt=[]), 400),
    "a prompt that never fits": (body(1, prompt=[1] * 5000), 400),
    "temperature": (body(1, temperature=-1), 400),
    "not a number": (body(1, temperature=float("nan")), 400),
    "infinite": (body(1, top_p=float("inf")), 400),
    "two answers": (body(1, n=2), 400),
    "tools": (body(1, tools=[{"type": "function"}]), 400),
    "another model": ({**body(1), "model": "another"}, 404),
    "a deep one": (body(1, stop=[[[[[[[["x"]]]]]]]]), 400),
}


def test_mistakes_of_clients() -> None:
    """Every one is refused in OpenAI's shape, and no rank hears of it."""
    with http_serving() as service:

        def scenario() -> None:
            for name, (sent, expected) in INVALID.items():
                status, answer = service.ask("POST", "/v1/completions", sent)
                assert status == expected, (name, answer)
                assert set(answer["error"]) >= {"message", "type", "param", "code"}, name
                status, answer = service.ask("POST", "/v1/chat/completions", sent)
                assert 400 <= status < 500, (name, answer)

        before = service.ask("GET", "/v1/engine")[1]["steps"]
        clean_after(service, scenario)
        after = service.ask("GET", "/v1/engine")[1]["steps"]
        # Two canaries of eight tokens, each with the step that releases it.
        assert (len(before), len(after)) == (0, 18)
        assert service.end()[0] == 0


@pytest.mark.parametrize("queue_ms", [60_000, pytest.param(50, marks=pytest.mark.exhaustive)])
def test_overload(queue_ms: int) -> None:
    """Refused with a time to come again, or served; nothing in between, and nobody hangs."""
    options = ["--max-waiting", "3", "--max-batch", "2", "--queue-ms", str(queue_ms)]
    with http_serving(options) as service:
        ends = Counter[str]()
        clean_after(service, lambda: ends.update(load(service, STAYING, 90, seed=4, clients=30)))
        late = {"overload.queue_time"} if queue_ms < 1000 else set()
        assert "complete" in ends
        assert set(ends) - {"complete", "refused"} <= {"overload.queue"} | late
        assert set(ends) - {"complete"}, "it was never too much"
        status, answer = service.complete()
        assert status == 200, answer
        assert service.end()[0] == 0


@pytest.mark.exhaustive
def test_slots_that_nobody_frees_are_noticed() -> None:
    with planted(deaf_to_ends):
        test_a_client_that_leaves_frees_its_slot_at_once()


@pytest.mark.exhaustive
def test_a_queue_without_end_is_noticed() -> None:
    with planted(endless_queue):
        test_overload(60_000)


@pytest.mark.exhaustive
def test_retry_after() -> None:
    one = ["--max-waiting", "1", "--max-batch", "1"]
    with http_serving(one, worker_module=SLOW_WORKER) as service:
        streams = [service.stream(1000)]
        streams[0].next()
        waiting = threading.Thread(target=service.complete, args=(1,))
        waiting.start()
        assert wait_until(lambda: len(service.ask("GET", "/v1/engine")[1]["requests"]) == 2)
        connection = service.connect()
        sent = b'{"prompt":[1],"max_tokens":1}'
        connection.request("POST", "/v1/completions", sent, {"Content-Type": "application/json"})
        with connection.getresponse() as response:
            assert (response.status, int(response.headers["retry-after"]) >= 1) == (429, True)
        streams[0].leave()
        waiting.join()
        assert service.end()[0] == 0


@pytest.mark.parametrize(
    ("count", "killed", "worker"),
    [
        (40, [1], SLOW_WORKER),
        pytest.param(240, [1, 0], WORKER, marks=pytest.mark.exhaustive),
    ],
)
def test_failures_in_the_middle_of_everything(count: int, killed: list[int], worker: str) -> None:
    """Ranks are killed; every request ends, with all of its answer or with an error."""
    restarts = ["--restart-policy", "on-failure"]
    with http_serving(restarts, worker_module=worker) as service:
        ends = Counter[str]()

        def scenario() -> None:
            kinds = (*STAYING, left_in_stream)
            job = threading.Thread(target=lambda: ends.update(load(service, kinds, count, seed=5)))
            job.start()
            for rank in killed:
                time.sleep(0.5)
                assert wait_until(lambda: bool(service.ready()["ok"]))
                os.kill(service.pids()[rank], signal.SIGKILL)
                assert wait_until(lambda: not service.ready()["ok"])
            job.join()

        clean_after(service, scenario)
        assert sum(ends.values()) == count
        allowed = {"complete", "left", "refused", "protocol.closed"}
        assert set(ends) - allowed <= {"group.poisoned", "overload.loading"}
        assert ends["protocol.closed"] + ends["refused"] + ends["overload.loading"] > 0
        assert service.ready()["restarts"] == len(killed)
        assert service.end()[0] == 0


@pytest.mark.parametrize("count", [30, pytest.param(100, marks=pytest.mark.exhaustive)])
def test_many_early_stops_at_once(count: int) -> None:
    """Each could have gone on for most of the context; each is stopped by its string."""
    with http_serving() as service:
        ends = load(service, (stopped,), count, seed=6, clients=count)
        assert ends == {"stop": count}
        clean_after(service, lambda: load(service, ALL, 20, seed=7))
        assert service.end()[0] == 0
