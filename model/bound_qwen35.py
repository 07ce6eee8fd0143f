"""Qwen3.5 behind the worker's executor protocol: plans and buffers in, partials and reports out.

The JSON of ACK, LOAD and plans is read here by program/'s strict codecs; what a plan may ask is
judged by the executor's slot table before anything changes. It must not know frames or sessions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from errors import MisuseError
from model.crew import Crew
from model.qwen35 import Qwen35Executor
from model.qwen35_weights import LoadReport, load_weights, peak_rss_bytes
from program.checkpoint import open_checkpoint
from program.digest import program_digest
from program.plan import PlanLimits, StepPlan
from program.plan_codec import decode_plan, plan_digest
from program.qwen35 import Qwen35Config, Variant, qwen35_program
from program.qwen35_config import read_config
from program.qwen35_load import LoadOrder, ModelSource
from program.spec import ProgramSpec
from program.step_report import RESULT_TENSOR, StepReport, encode_report

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True)
class StepArtifact:
    """A rank's RESULT: tensor, shape and payload of the pairs, and the report."""

    tensor: str
    shape: tuple[int, ...]
    payload: Buffer
    report: Mapping[str, Any]


class BoundQwen35:
    """One rank of a Qwen3.5 program, from LOAD on."""

    def __init__(self, folder: Path, config: Qwen35Config, program: ProgramSpec, rank: int) -> None:
        self._folder = folder
        self._config = config
        self._program = program
        self._rank = rank
        self._dtype = np.dtype(program.partial_dtype.value)
        self._loaded: tuple[Qwen35Executor, PlanLimits] | None = None
        # The plan that was accepted, and its digest.
        self._accepted: tuple[StepPlan, str] | None = None
        self._shape: tuple[int, ...] = ()

    def load_tensor(self, name: str, payload: Buffer) -> NoReturn:
        raise MisuseError("a model program reads its weights from the checkpoint")

    def load_local(self, parameters: Mapping[str, object]) -> Mapping[str, int]:
        """Bind to processors, read this rank's slices, allocate and touch its state."""
        order = LoadOrder.from_json(parameters)
        if order.cpus:
            os.sched_setaffinity(0, order.cpus)
        crew = Crew(self._thread_count(order.cpus))
        checkpoint = open_checkpoint(self._folder, self._program.weights)
        weights, report = load_weights(
            self._config,
            self._program,
            checkpoint,
            self._rank,
            weights_dtype=order.weights_dtype,
            check_values=order.check_weights,
            crew=crew,
        )
        executor = Qwen35Executor(
            self._config,
            self._program,
            weights,
            order.limits,
            crew=crew,
            poison=order.poison_state,
        )
        self._loaded = (executor, order.limits)
        return _load_report(report, executor)

    def _thread_count(self, cpus: tuple[int, ...]) -> int:
        """One per processor the rank is bound to; unbound ranks share the visible ones."""
        visible = len(os.sched_getaffinity(0))
        return len(cpus) or max(1, visible // self._program.world_size)

    def accept_operand(self, shape: tuple[int, ...]) -> NoReturn:
        raise MisuseError("a model program takes plans, not INPUT")

    def accept(self, plan: Mapping[str, object]) -> str:
        """The plan's digest. Raises ContractError for a plan that this rank can't run.

        Slots, pages and state stay as they are either way.
        """
        executor, limits = self._ready
        decoded = decode_plan(plan, limits)
        executor.check(decoded)
        digest = plan_digest(decoded)
        self._accepted = (decoded, digest)
        return digest

    def begin(self, operand: tuple[tuple[int, ...], Buffer] | None) -> tuple[int, ...]:
        """Apply the plan that was accepted."""
        if operand is not None:
            raise MisuseError("a model program takes a plan, not INPUT")
        plan, _ = self._step_plan
        self._shape = self.executor.begin(plan)
        return self._shape

    def partial(self, stage: int) -> Buffer:
        return np.ascontiguousarray(self.executor.partial(stage)).data.cast("B")

    def reduced(self, stage: int, total: Buffer) -> None:
        self.executor.reduced(stage, np.frombuffer(total, self._dtype).reshape(self._shape))

    def finish(self) -> StepArtifact:
        plan, digest = self._step_plan
        outcome = self.executor.finish()
        self._accepted = None
        report = StepReport(
            plan_digest=digest,
            state_digest=outcome.state_digest,
            hidden_digest=outcome.hidden_digest,
            artifacts=outcome.artifacts,
        )
        encoded = encode_report(report, plan)
        return StepArtifact(RESULT_TENSOR, encoded.shape, encoded.payload, encoded.report)

    @property
    def _ready(self) -> tuple[Qwen35Executor, PlanLimits]:
        if self._loaded is None:
            raise MisuseError("a step came before LOAD")
        return self._loaded

    @property
    def executor(self) -> Qwen35Executor:
        """What LOAD made of this rank."""
        return self._ready[0]

    @property
    def _step_plan(self) -> tuple[StepPlan, str]:
        if self._accepted is None:
            raise MisuseError("a step came before its plan")
        return self._accepted


def _load_report(report: LoadReport, executor: Qwen35Executor) -> dict[str, int]:
    """The load fence's report, with state in place: all in bytes but the counts of tensors."""
    return {
        "bytes_held": report.bytes_held,
        "bytes_read": report.bytes_read,
        "peak_rss_bytes": peak_rss_bytes(),
        "skipped_bytes": report.skipped_bytes,
        "skipped_tensors": sum(report.skipped_tensors.values()),
        "state_bytes": executor.state.allocated_bytes,
        "tensors": report.tensors,
    }


@dataclass(frozen=True)
class OpenedQwen35:
    """A Qwen3.5 program as one rank will run it."""

    spec: ProgramSpec
    digest: str
    executor: BoundQwen35


def open_qwen35(
    variant: Variant, parameters: Mapping[str, object], rank: int, world_size: int
) -> OpenedQwen35:
    """The program of an ACK, derived from the checkpoint's config.json.

    Raises ContractError for other parameters, ConfigError for a checkpoint that can't be run so.
    """
    source = ModelSource.from_json(parameters)
    folder = Path(source.checkpoint)
    config = read_config(folder)
    program = qwen35_program(config, variant, world_size, source.compute)
    return OpenedQwen35(
        program, program_digest(program), BoundQwen35(folder, config, program, rank)
    )
