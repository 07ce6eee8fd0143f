"""Many seeded requests of every kind, with clients that leave, and the canary in between.

At the end everything is as at the start: slots, pages, descriptors, processes, memory.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from coordinator.gates.live import Live, Request
from coordinator.gates.probe import probe
from coordinator.process_table import children, open_descriptors
from coordinator.request import Outcome, RequestEvent

PROBE_EVERY: Final = 25
# Arenas are allocated and touched at the start; what Python keeps of 500 requests is far less.
RSS_GROWTH_BYTES: Final = 24 << 20
_ENDS: Final = (RequestEvent.CANCEL, RequestEvent.DISCONNECT, RequestEvent.DROP)


@dataclass(frozen=True)
class Resources:
    """Of this process and its workers."""

    descriptors: frozenset[str]
    processes: frozenset[int]
    worker_descriptors: tuple[int, ...]
    resident_bytes: tuple[int, ...]


def resources(service: Live) -> Resources:
    pids = [rank.pid for rank in service.engine.snapshot.ranks if rank.pid is not None]
    return Resources(
        descriptors=frozenset(open_descriptors()),
        processes=frozenset(children()),
        worker_descriptors=tuple(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids),
        resident_bytes=tuple(_resident(pid) for pid in [os.getpid(), *pids]),
    )


def _resident(pid: int) -> int:
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def soak(service: Live, count: int, seed: int) -> dict[Outcome, int]:
    """`count` requests, the canary after every PROBE_EVERY; how they ended.

    Raises AssertionError for anything that is left behind.
    """
    random = Random(seed)
    expected = probe(service)
    before = resources(service)
    requests: list[Request] = []
    for number in range(1, count + 1):
        requests.append(_submit(service, random))
        service.turns(random.choice([0, 0, 1, 2, 4]))
        if random.random() < 0.5:
            leaving = random.choice(requests[-6:])
            # A stop string is found in tokens, so there are some.
            events = (*_ENDS, RequestEvent.STOP) if leaving.tokens else _ENDS
            service.end(leaving, random.choice(events))
        if number % PROBE_EVERY == 0:
            service.finish()
            service.demand_idle()
            if probe(service) != expected:
                raise AssertionError(f"the canary differs after {number} requests (seed {seed})")
    service.finish()
    service.demand_idle()
    _demand_unchanged(before, resources(service))
    ends: dict[Outcome, int] = {}
    for request in requests:
        ends[request.end.outcome] = ends.get(request.end.outcome, 0) + 1
    return ends


def _submit(service: Live, random: Random) -> Request:
    limits = service.setup.capacity.limits
    prompt = [random.randrange(limits.vocab_size) for _ in range(random.choice([1, 2, 5, 9, 26]))]
    parameters: dict[str, object] = {}
    if random.random() < 0.5:
        parameters |= {"temperature": 1.0, "seed": random.randrange(2**64), "top_p": 0.9}
    if random.random() < 0.3:
        parameters["logprobs"] = random.choice([0, 2, 20])
    if random.random() < 0.3:
        parameters["stop_token_ids"] = random.sample(range(limits.vocab_size), 12)
    # Some could never fit.
    tokens = random.choice([1, 2, 3, 7, 12]) if random.random() < 0.95 else limits.pages * 8
    return service.submit(prompt, tokens, **parameters)


def _demand_unchanged(before: Resources, after: Resources) -> None:
    if after.descriptors != before.descriptors:
        raise AssertionError(f"descriptors: {sorted(after.descriptors ^ before.descriptors)}")
    if (after.processes, after.worker_descriptors) != (before.processes, before.worker_descriptors):
        raise AssertionError("processes or their descriptors are others than before")
    growth = [
        new - old for new, old in zip(after.resident_bytes, before.resident_bytes, strict=True)
    ]
    if max(growth) > RSS_GROWTH_BYTES:
        raise AssertionError(f"resident bytes grew by {growth}")
