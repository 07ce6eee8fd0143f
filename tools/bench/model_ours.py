"""Timings of a Qwen3.5 model on this runtime: prefill and decode steps over real processes."""

from __future__ import annotations

import time
from dataclasses import dataclass

from coordinator.model_run import ModelBindings, running_model
from coordinator.model_session import ModelSession
from coordinator.model_setup import set_up
from manifest.run_manifest import from_flags
from program.plan import Admit, Release, Row, Sample, Sampling, StepPlan, pages_needed
from wire.recorder import Recorder

PAGE_TOKENS = 16
PREFILLS = 5
WARM_UP_STEPS = 2
SAMPLE = Sample()


@dataclass(frozen=True)
class Case:
    """One measurement: how many requests of `prompt` tokens, and how many decode steps.

    The first prefill and the first decode steps of a case are warm-up, as those of the baseline.
    """

    batch: int
    prompt: int
    steps: int


@dataclass(frozen=True)
class Timing:
    """prefill_s: the step of one request's whole prompt, each. decode_s: per step of all."""

    prefill_s: list[float]
    decode_s: list[float]


@dataclass(frozen=True)
class Measured:
    """timings by case, and per rank what the load reports say (bytes)."""

    timings: dict[Case, Timing]
    weights_bytes: list[int]
    state_bytes: list[int]
    peak_rss_bytes: list[int]


def measure(
    checkpoint: str,
    program: str,
    ranks: int,
    weights_dtype: str,
    cases: list[Case],
    bindings: ModelBindings,
) -> Measured:
    """Load once, run every case on the same ranks."""
    manifest = from_flags(
        {
            "program": program,
            "ranks": str(ranks),
            "model.checkpoint": checkpoint,
            "model.weights_dtype": weights_dtype,
            "model.max_batch": str(max(case.batch for case in cases)),
            "model.max_step_tokens": str(max(case.prompt for case in cases)),
            "model.page_tokens": str(PAGE_TOKENS),
            "deadlines.load_ms": "600000",
            "deadlines.phase_ms": "120000",
        }
    )
    setup = set_up(manifest, bindings.machine)
    with running_model(setup, manifest, bindings, Recorder(keep_bytes=False)) as session:
        runner = _Runner(session)
        timings = {case: runner.run(case) for case in cases}
        reports = session.reports
    return Measured(
        timings,
        [int(str(report["bytes_held"])) for report in reports],
        [int(str(report["state_bytes"])) for report in reports],
        [int(str(report["peak_rss_bytes"])) for report in reports],
    )


class _Runner:
    """Plans made by hand: every request has the same length, so no scheduler is needed."""

    def __init__(self, session: ModelSession) -> None:
        self._session = session
        self._next_request = 0
        self._generation = 0

    def run(self, case: Case) -> Timing:
        prefill = []
        for _ in range(PREFILLS + 1):
            seconds, request = self._prefilled(case, 0)
            prefill.append(seconds)
            self._timed(releases=(request,))
        requests = [self._prefilled(case, slot)[1] for slot in range(case.batch)]
        decode = []
        for step in range(WARM_UP_STEPS + case.steps):
            rows = tuple(
                Row(
                    one.request_id,
                    one.slot,
                    case.prompt + step,
                    ((step + one.slot) % 1000,),
                    SAMPLE,
                )
                for one in requests
            )
            decode.append(self._timed(rows=rows))
        self._timed(releases=tuple(requests))
        return Timing(prefill[1:], decode[WARM_UP_STEPS:])

    def _prefilled(self, case: Case, slot: int) -> tuple[float, Release]:
        """Seconds of one request's prefill, and what will end it."""
        self._generation += 1
        request = self._next_request
        self._next_request += 1
        tokens_max = case.prompt + WARM_UP_STEPS + case.steps
        pages = pages_needed(tokens_max, PAGE_TOKENS)
        numbers = tuple(range(slot * pages, (slot + 1) * pages))
        admit = Admit(slot, request, self._generation, numbers, case.prompt, tokens_max, Sampling())
        prompt = tuple((7 * position + slot) % 1000 for position in range(case.prompt))
        row = Row(request, slot, 0, prompt, SAMPLE)
        seconds = self._timed(admissions=(admit,), rows=(row,))
        return seconds, Release(slot, request, self._generation)

    def _timed(
        self,
        *,
        releases: tuple[Release, ...] = (),
        admissions: tuple[Admit, ...] = (),
        rows: tuple[Row, ...] = (),
    ) -> float:
        step = self._session.table.next_step
        plan = StepPlan(step, releases=releases, admissions=admissions, rows=rows)
        started = time.perf_counter()
        self._session.step(plan)
        return time.perf_counter() - started
