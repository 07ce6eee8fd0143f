"""Many clients of every kind at once, from a seed; and what became of each request."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice
from random import Random
from typing import Any, Final

from coordinator.gates.http_checks import demand_complete
from coordinator.gates.http_serving import DONE, HttpServing

CLIENTS: Final = 12
LONG: Final = tuple(range(1, 200))
# One request of a client: what became of it. Raises AssertionError for anything unexpected.
Kind = Callable[[HttpServing, Random], str]


def short(service: HttpServing, random: Random) -> str:
    """Answered whole."""
    status, answer = service.complete(random.randint(1, 8))
    return "complete" if status == 200 else _refused(status, answer)


def long(service: HttpServing, random: Random) -> str:
    """A prompt of many chunks."""
    status, answer = service.complete(random.randint(1, 4), prompt=list(LONG))
    return "complete" if status == 200 else _refused(status, answer)


def streamed(service: HttpServing, random: Random) -> str:
    stream = service.stream(random.randint(1, 30))
    events = stream.rest()
    if stream.status != 200:
        return "refused"
    if events and events[-1] != DONE and "error" in events[-1]:
        return str(events[-1]["error"]["code"])
    demand_complete(events, "length")
    return "complete"


def stopped(service: HttpServing, random: Random) -> str:
    """By a string that is in what the model says."""
    sent: dict[str, Any] = {"prompt": "Return the", "stop": ["pixels of"], "temperature": 0}
    status, answer = service.complete(900, **sent)
    if status != 200:
        return _refused(status, answer)
    reason = answer["choices"][0]["finish_reason"]
    if reason != "stop":
        raise AssertionError(f"ended by {reason}, not by its stop string")
    return "stop"


def left_in_stream(service: HttpServing, random: Random) -> str:
    """After some events, or none."""
    stream = service.stream(600)
    for _ in range(random.choice([0, 1, 3, 9])):
        stream.next()
    stream.leave()
    return "left"


def left_in_queue_or_prefill(service: HttpServing, random: Random) -> str:
    """Right after the request was sent, before anything was answered."""
    connection = service.connect()
    with contextlib.suppress(OSError):
        sent = b'{"prompt":[%s],"max_tokens":500,"ignore_eos":true}' % b",".join(
            b"%d" % token for token in LONG
        )
        connection.request("POST", "/v1/completions", sent, {"Content-Type": "application/json"})
    connection.close()
    return "left"


def deleted(service: HttpServing, random: Random) -> str:
    """By its name, from another connection."""
    stream = service.stream(600)
    first = stream.next()
    if stream.status != 200 or first is None or "id" not in first:
        stream.leave()
        return "refused"
    service.ask("DELETE", f"/v1/requests/{first['id']}")
    events = stream.rest()
    if len(events) >= 600:
        raise AssertionError("it was not ended")
    return "deleted"


def refused(service: HttpServing, random: Random) -> str:
    """A client's mistake."""
    status, answer = service.complete(3, temperature=random.choice([-1, "hot", 1e9]))
    if (status, answer["error"]["param"]) != (400, "temperature"):
        raise AssertionError(f"{status} {answer}")
    return "mistake"


def chatted(service: HttpServing, random: Random) -> str:
    """Through the template, whose text is made in another thread."""
    messages = [{"role": "user", "content": "Return the " * random.randint(1, 20)}]
    sent = {"messages": messages, "max_tokens": random.randint(1, 4)}
    status, answer = service.ask("POST", "/v1/chat/completions", sent)
    return "complete" if status == 200 else _refused(status, answer)


def looked(service: HttpServing, random: Random) -> str:
    """At health, metrics, the engine."""
    path = random.choice(["/readyz", "/metrics", "/v1/engine", "/v1/requests", "/"])
    service.ask("GET", path)
    return "looked"


ALL: Final[tuple[Kind, ...]] = (
    short,
    long,
    streamed,
    stopped,
    left_in_stream,
    left_in_queue_or_prefill,
    deleted,
    chatted,
    refused,
    looked,
)
LEAVING: Final[tuple[Kind, ...]] = (left_in_stream, left_in_queue_or_prefill, deleted)
STAYING: Final[tuple[Kind, ...]] = (short, long, streamed)


def load(
    service: HttpServing, kinds: tuple[Kind, ...], count: int, seed: int, clients: int = CLIENTS
) -> Counter[str]:
    """`count` requests, each kind equally often, by so many clients; how they ended."""
    seeds = Random(seed)
    order = list(islice(cycle(kinds), count))
    seeds.shuffle(order)
    with ThreadPoolExecutor(clients) as pool:
        jobs = [pool.submit(kind, service, Random(seeds.random())) for kind in order]
        return Counter(job.result() for job in jobs)


def _refused(status: int, answer: Any) -> str:
    """The error's code. A refusal that says nothing is a fault."""
    if status not in (429, 503):
        raise AssertionError(f"{status} {answer}")
    return str(answer["error"]["code"])
