"""The metadata that both ends predict for one rank's frames, encoded once and compared as bytes.

The two ends build it from the same values (docs/spec/metadata.md), so what one sends is what the
other demands. A steady step then spends nothing on JSON. Values come from the caller's program;
this file must not know what they mean.
"""

from __future__ import annotations

from typing import NamedTuple

from wire.canonical import JsonObject
from wire.frame import Kind
from wire.metadata import Command, Fence, Result, Tensor, payload_bytes
from wire.step_template import StepTemplate

INPUT_TENSOR = "x"
TENSOR_DTYPE = "<f4"
_SUMMED = (Kind.PARTIAL, Kind.REDUCTION)
_Key = tuple[Kind, str, tuple[int, ...]]


class Agreed(NamedTuple):
    """What a frame must say: its metadata, and the length of its payload."""

    metadata: bytes
    payload_bytes: int


class AgreedMetadata:
    """rank: the worker's, in both directions (M4).

    partial_dtype: element type of partials and reductions; every other tensor is binary32.
    """

    def __init__(self, rank: int, phases: tuple[str, ...], partial_dtype: str) -> None:
        self._rank = rank
        self._phases = phases
        self._partial_dtype = partial_dtype
        self._tensors: dict[_Key, Agreed] = {}
        self._templates: dict[_Key, tuple[StepTemplate, int]] = {}

    def weight(self, name: str, shape: tuple[int, ...]) -> Agreed:
        return self._tensor(Kind.WEIGHT, "load", name, shape)

    def operand(self, shape: tuple[int, ...]) -> Agreed:
        return self._tensor(Kind.INPUT, "input", INPUT_TENSOR, shape)

    def partial(self, stage: int, shape: tuple[int, ...]) -> Agreed:
        phase = self._phases[stage]
        return self._tensor(Kind.PARTIAL, phase, f"{phase}.partial", shape)

    def reduction(self, stage: int, shape: tuple[int, ...]) -> Agreed:
        phase = self._phases[stage]
        return self._tensor(Kind.REDUCTION, phase, f"{phase}.total", shape)

    def fence(self, stage: int) -> Agreed:
        key = (Kind.FENCE, self._phases[stage], ())
        agreed = self._tensors.get(key)
        if agreed is None:
            fence = Fence(phase=self._phases[stage], rank=self._rank, report=None, tensors=1)
            agreed = self._tensors[key] = Agreed(fence.to_bytes(), 0)
        return agreed

    def command(self, stage: int, step: int) -> Agreed:
        """A COMMAND without a plan."""
        key = (Kind.COMMAND, self._phases[stage], ())
        known = self._templates.get(key)
        if known is None:
            command = Command(phase=self._phases[stage], plan=None, rank=self._rank, step=0)
            known = self._templates[key] = (StepTemplate(command.to_bytes()), 0)
        return Agreed(known[0].at(step), known[1])

    def plan(self, plan: JsonObject, step: int) -> Agreed:
        """The COMMAND that begins a step of a planned program; no two are alike."""
        command = Command(phase="plan", plan=plan, rank=self._rank, step=step)
        return Agreed(command.to_bytes(), 0)

    def plan_fence(self, plan_digest: str) -> Agreed:
        """The answer of a rank that accepts the plan with this digest."""
        report: JsonObject = {"plan_digest": plan_digest}
        fence = Fence(phase="plan", rank=self._rank, report=report, tensors=0)
        return Agreed(fence.to_bytes(), 0)

    def result(self, name: str, shape: tuple[int, ...], step: int) -> Agreed:
        """A RESULT without a report."""
        key = (Kind.RESULT, name, shape)
        known = self._templates.get(key)
        if known is None:
            result = Result(
                dtype=TENSOR_DTYPE,
                phase="result",
                rank=self._rank,
                report=None,
                shape=shape,
                step=0,
                tensor=name,
            )
            template = StepTemplate(result.to_bytes())
            known = self._templates[key] = (template, payload_bytes(shape, TENSOR_DTYPE))
        return Agreed(known[0].at(step), known[1])

    def _tensor(self, kind: Kind, phase: str, name: str, shape: tuple[int, ...]) -> Agreed:
        key = (kind, name, shape)
        agreed = self._tensors.get(key)
        if agreed is None:
            dtype = self._partial_dtype if kind in _SUMMED else TENSOR_DTYPE
            tensor = Tensor(dtype=dtype, phase=phase, rank=self._rank, shape=shape, tensor=name)
            size = payload_bytes(shape, dtype)
            agreed = self._tensors[key] = Agreed(tensor.to_bytes(), size)
        return agreed
