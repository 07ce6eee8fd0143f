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

from errors import ContractError, MisuseError
from model.qwen35 import Qwen35Executor
from model.qwen35_weights import LoadReport, load_weights
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
        self._plan = StepPlan(step=0)
        self._shape: tuple[int, ...] = ()

    def load_tensor(self, name: str, payload: Buffer) -> NoReturn:
        raise MisuseError("a model program reads its weights from the checkpoint")

    def load_local(self, parameters: Mapping[str, object]) -> Mapping[str, int]:
        """Bind to processors, read this rank's slices, allocate and touch its state."""
        order = LoadOrder.from_json(parameters)
        if order.cpus:
            os.sched_setaffinity(0, order.cpus)
        checkpoint = open_checkpoint(self._folder, self._program.weights)
        weights, report = load_weights(
            self._config,
            self._program,
            checkpoint,
            self._rank,
            weights_dtype=order.weights_dtype,
            check_values=order.check_weights,
        )
        executor = Qwen35Executor(
            self._config, self._program, weights, order.limits, poison=order.poison_state
        )
        self._loaded = (executor, order.limits)
        return _load_report(report, executor)

    def begin(
        self, plan: object | None, operand: tuple[tuple[int, ...], Buffer] | None
    ) -> tuple[int, ...]:
        """Apply the plan. Raises ContractError, with nothing changed, for one it can't accept."""
        if self._loaded is None:
            raise ContractError("kind", "a step came before LOAD")
        if operand is not None:
            raise ContractError("kind", "a model program takes a plan, not INPUT")
        executor, limits = self._loaded
        decoded = decode_plan(plan, limits)
        self._shape = executor.begin(decoded)
        self._plan = decoded
        return self._shape

    def partial(self, stage: int) -> Buffer:
        return np.ascontiguousarray(self._executor.partial(stage)).data.cast("B")

    def reduced(self, stage: int, total: Buffer) -> None:
        self._executor.reduced(stage, np.frombuffer(total, self._dtype).reshape(self._shape))

    def finish(self) -> StepArtifact:
        outcome = self._executor.finish()
        report = StepReport(
            plan_digest=plan_digest(self._plan),
            state_digest=outcome.state_digest,
            hidden_digest=outcome.hidden_digest,
            artifacts=outcome.artifacts,
        )
        encoded = encode_report(report, self._plan)
        return StepArtifact(RESULT_TENSOR, encoded.shape, encoded.payload, encoded.report)

    @property
    def _executor(self) -> Qwen35Executor:
        if self._loaded is None:
            raise MisuseError("a stage came before LOAD")
        return self._loaded[0]


def _load_report(report: LoadReport, executor: Qwen35Executor) -> dict[str, int]:
    """The load fence's report: all in bytes but the counts of tensors."""
    return {
        "bytes_held": report.bytes_held,
        "bytes_read": report.bytes_read,
        "peak_rss_bytes": report.peak_rss_bytes,
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
