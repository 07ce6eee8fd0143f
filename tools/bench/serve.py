"""`bench serve`: loads over HTTP, and what HTTP and the scheduler add to a step."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from coordinator.model_run import ModelBindings
from coordinator.serving.garbage import settle
from errors import TPError
from manifest.run_manifest import RunManifest
from tools.bench.serve_client import DONE, Answer, Endpoint, get_json, stream
from tools.bench.serve_loads import COMPLETIONS, Asking, Load, completion_body
from tools.bench.serve_overhead import (
    Overhead,
    Turn,
    Wave,
    paces_of_engine,
    paces_of_server,
)
from tools.bench.serve_report import LoadReport, report_of
from tools.bench.serve_server import Started
from tools.bench.turned_engine import TurnedEngine, processor_s, turned_engine

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
BATCH: Final = 8
# A wave ends before the server forgets its first full step: it tells of the last 60.
WAVE_TOKENS: Final = 56
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


def overhead(
    started: Started,
    key: str | None,
    manifest: RunManifest,
    bindings: ModelBindings,
    asking: Asking,
    waves: int,
) -> Overhead:
    """Waves of the server and of the engine alone, in turns. manifest: of the server's model."""
    endpoint = Endpoint.of(started.url, key)
    asking, _ = asyncio.run(discover(endpoint, replace(asking, tokens=WAVE_TOKENS)))
    positions = asking.prompt + WAVE_TOKENS
    with ExitStack() as stack:
        observed, bare = (
            stack.enter_context(
                turned_engine(manifest, bindings, positions, BATCH, observed=is_observed)
            )
            for is_observed in (True, False)
        )
        # As the server does, or the comparison would be with its collector of cycles.
        settle()
        turns = [
            Turn(
                _http_wave(endpoint, started.pid, asking),
                _direct_wave(observed, asking),
                _direct_wave(bare, asking),
            )
            for _ in range(waves + 1)
        ]
    # In the first one all got warm.
    return Overhead(BATCH, turns[1:])


def _http_wave(endpoint: Endpoint, pid: int, asking: Asking) -> Wave:
    steps, used = asyncio.run(_wave(endpoint, pid, asking))
    return Wave(paces_of_server(steps, BATCH), used * 1e3 / len(steps))


async def _wave(
    endpoint: Endpoint, pid: int, asking: Asking
) -> tuple[list[Mapping[str, object]], float]:
    """BATCH requests at once, whole: the steps they took, as the server tells, and what it used.

    Telling costs the server more than a step, so processor time is read before it is asked.
    """
    clock = asyncio.get_running_loop().time
    answers = [Answer("wave", clock()) for _ in range(BATCH)]
    first = await _last_step(endpoint)
    before = processor_s(pid)
    async with asyncio.TaskGroup() as group:
        for number, answer in enumerate(answers):
            body = completion_body(asking, number, asking.prompt)
            timeout = asking.timeout_s
            group.create_task(stream(endpoint, COMPLETIONS, body, answer, timeout_s=timeout))
    used = processor_s(pid) - before
    ends = {answer.end for answer in answers}
    if ends != {DONE}:
        raise TPError("bench.failed", f"requests of a wave ended: {sorted(ends)}")
    steps = [step for step in await _steps(endpoint) if int(str(step["step"])) > first]
    if len(steps) <= WAVE_TOKENS // 2:
        raise TPError("bench.failed", f"the server tells of {len(steps)} steps of a wave")
    return steps, used


async def _last_step(endpoint: Endpoint) -> int:
    steps = await _steps(endpoint)
    return int(str(steps[-1]["step"])) if steps else -1


async def _steps(endpoint: Endpoint) -> list[Mapping[str, object]]:
    steps = (await get_json(endpoint, ENGINE, _LOOK_S)).get("steps")
    if not isinstance(steps, list):
        raise TPError("bench.http", f"GET {ENGINE} tells no steps")
    return steps


def _direct_wave(engine: TurnedEngine, asking: Asking) -> Wave:
    """The same requests, submitted together."""
    first = len(engine.steps)
    busy = time.process_time()
    bodies = [completion_body(asking, number, asking.prompt) for number in range(BATCH)]
    streams = [engine.submit(_token_ids(body), asking.tokens) for body in bodies]
    engine.finish(streams)
    used = time.process_time() - busy
    steps = engine.steps[first:]
    return Wave(paces_of_engine(steps, BATCH), used * 1e3 / len(steps))


def _token_ids(body: Mapping[str, object]) -> list[int]:
    prompt = body["prompt"]
    return list(prompt) if isinstance(prompt, list) else []
