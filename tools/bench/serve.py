"""`bench serve`: loads over HTTP, one after the other. What HTTP costs a step: serve_turns.py."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from errors import TPError
from tools.bench.serve_client import Endpoint, get_json
from tools.bench.serve_loads import Asking, Load
from tools.bench.serve_report import LoadReport, report_of

LOADS: Final[Mapping[str, Callable[[Load], Awaitable[None]]]] = MappingProxyType(
    {
        "closed": Load.closed,
        "open": Load.open,
        "turns": Load.turns,
        "mixed": Load.mixed,
        "storm": Load.storm,
    }
)
ENGINE: Final = "/v1/engine"
_LOOK_S: Final = 5.0
_SETTLE_S: Final = 10.0
# What every tokenizer has, where the server does not say how large its vocabulary is.
_VOCABULARY: Final = 256


@dataclass(frozen=True)
class Loaded:
    """generator_cores: processor time of this process per second: it must stay well below 1."""

    reports: list[LoadReport]
    generator_cores: float


async def discover(endpoint: Endpoint, asking: Asking) -> tuple[Asking, bool]:
    """asking, for the model that is served; and whether the server tells of its engine."""
    models = (await get_json(endpoint, "/v1/models", _LOOK_S)).get("data")
    if not isinstance(models, list) or not models:
        raise TPError("bench.http", "GET /v1/models names no model")
    try:
        limits = (await get_json(endpoint, ENGINE, _LOOK_S)).get("limits")
    except TPError:
        limits = None
    if not isinstance(limits, dict):
        return replace(asking, model=str(models[0]["id"]), vocabulary=_VOCABULARY), False
    vocabulary = int(limits["vocab_size"])
    return replace(asking, model=str(models[0]["id"]), vocabulary=vocabulary), True


async def run_loads(endpoint: Endpoint, asking: Asking, names: Sequence[str]) -> Loaded:
    """One load after the other; each is followed by a plain request and a look at what is left."""
    asking, tells = await discover(endpoint, asking)
    await Load(endpoint, asking).probe()
    reports = []
    busy, started = time.process_time(), time.perf_counter()
    for name in names:
        load = Load(endpoint, asking)
        await LOADS[name](load)
        probe = await Load(endpoint, asking).probe()
        left = await _left_over(endpoint) if tells else None
        reports.append(report_of(name, load.asked, load.answers, probe.end, left))
    used = time.process_time() - busy
    return Loaded(reports, used / (time.perf_counter() - started))


async def _left_over(endpoint: Endpoint) -> int:
    """Requests that still live once there was time to end them."""
    deadline = time.monotonic() + _SETTLE_S
    while True:
        found = (await get_json(endpoint, ENGINE, _LOOK_S)).get("requests")
        count = len(found) if isinstance(found, list) else 0
        if not count or time.monotonic() >= deadline:
            return count
        await asyncio.sleep(0.05)
