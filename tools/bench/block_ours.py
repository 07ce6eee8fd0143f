"""Timings of the frozen block on this runtime: steady steps, and whole cases."""

from __future__ import annotations

import time
from collections.abc import Callable

from coordinator.block_run import block_group, block_step, run_block
from coordinator.local_ranks import LocalRanks
from coordinator.processes import Launcher
from errors import TPError
from manifest.run_manifest import RunManifest, from_flags
from oracle.block import judge
from wire.recorder import Recorder

WARM_UP_STEPS = 30


def manifest(ranks: int, batch: int, sequence: int, transport: str) -> RunManifest:
    return from_flags(
        {
            "ranks": str(ranks),
            "batch": str(batch),
            "sequence": str(sequence),
            "transport": transport,
        }
    )


def steady_us(run: RunManifest, launcher: Launcher, steps: int) -> list[float]:
    """Microseconds of each of `steps` block steps on running ranks; the last output is judged."""
    recorder = Recorder(keep_bytes=False)
    times = []
    with LocalRanks(run, launcher) as ranks:
        group = block_group(run, ranks.connect(recorder).links)
        step = block_step(run)
        for _ in range(WARM_UP_STEPS):
            group.run_step(step)
        for _ in range(steps):
            started = time.perf_counter()
            results = group.run_step(step)
            times.append((time.perf_counter() - started) * 1e6)
        group.close()
        ranks.stop(run.deadlines.close_ms)
    _demand_right(bytes(results[0].payload), run)
    return times


def case_s(run: RunManifest, launcher: Callable[[], Launcher]) -> float:
    """Seconds of one whole case: start the ranks, run the block, reap the ranks."""
    recorder = Recorder(keep_bytes=True)
    started = time.perf_counter()
    with LocalRanks(run, launcher()) as ranks:
        outcome = run_block(run, lambda recorder: ranks.connect(recorder).links, recorder)
        ranks.stop(run.deadlines.close_ms)
    elapsed = time.perf_counter() - started
    if outcome.output is None:
        raise TPError("bench.failed", str(outcome.failure))
    _demand_right(outcome.output, run)
    return elapsed


def _demand_right(output: bytes, run: RunManifest) -> None:
    judgement = judge(output, run.seed, run.batch, run.sequence)
    if not judgement.passed:
        raise TPError("bench.wrong", f"the output is {judgement.max_abs_error} off")
