"""The frozen block behind the worker's executor protocol: buffers in, partials out.

Here a frame's raw buffer becomes an array and back. It must not know frames or sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from errors import ConfigError, ContractError, MisuseError
from model.block import BlockExecutor
from program.block import RESULT_TENSOR, block_spec, operand_shape
from program.digest import program_digest
from program.spec import ProgramSpec

Buffer = bytes | bytearray | memoryview
FLOAT32 = np.dtype("<f4")


@dataclass(frozen=True)
class BlockArtifact:
    """The block's output, the same bytes on every rank."""

    tensor: str
    shape: tuple[int, ...]
    payload: Buffer
    report: None = None


class BoundBlock:
    """The frozen block behind worker/executor.py's protocol."""

    def __init__(self, spec: ProgramSpec, rank: int) -> None:
        self._spec = spec
        self._rank = rank
        self._executor = BlockExecutor(spec, rank)
        self._shards: dict[str, NDArray[np.float32]] = {}
        self._shape: tuple[int, ...] = ()

    def load_tensor(self, name: str, payload: Buffer) -> None:
        """Keep one slice; the last one completes the load."""
        weights = {weight.name: weight for weight in self._spec.weights}
        shape = weights[name].local_shape(self._rank, self._spec.world_size)
        self._shards[name] = np.frombuffer(payload, FLOAT32).reshape(shape)
        if len(self._shards) == len(weights):
            self._executor.load(self._shards)

    def load_local(self, parameters: Mapping[str, object]) -> NoReturn:
        raise MisuseError("the block's weights come in frames")

    def accept_operand(self, shape: tuple[int, ...]) -> None:
        """Raises ContractError for a batch or sequence beyond the block's limits (B3)."""
        try:
            operand_shape(shape[0], shape[1])
        except ConfigError as failure:
            raise ContractError("metadata", failure.message) from None

    def accept(self, plan: Mapping[str, object]) -> NoReturn:
        raise MisuseError("the block takes no plan")

    def begin(self, operand: tuple[tuple[int, ...], Buffer] | None) -> tuple[int, ...]:
        """The operand's shape is the partials' shape."""
        if operand is None:
            raise MisuseError("the block takes an INPUT frame")
        shape, payload = operand
        self._shape = shape
        self._executor.begin(np.frombuffer(payload, FLOAT32).reshape(shape))
        return shape

    def partial(self, stage: int) -> Buffer:
        # A NaN or an infinity in the tensors goes through by IEEE's rules (A1); it is no warning.
        with np.errstate(all="ignore"):
            return self._executor.partial(stage).data.cast("B")

    def reduced(self, stage: int, total: Buffer) -> None:
        self._executor.reduced(stage, np.frombuffer(total, FLOAT32).reshape(self._shape))

    def finish(self) -> BlockArtifact:
        payload = self._executor.finish().data.cast("B")
        return BlockArtifact(RESULT_TENSOR, self._shape, payload)


@dataclass(frozen=True)
class OpenedBlock:
    """The block as one rank will run it."""

    spec: ProgramSpec
    digest: str
    executor: BoundBlock


def open_block(parameters: Mapping[str, object], rank: int, world_size: int) -> OpenedBlock:
    """The program of an ACK. Raises ContractError for parameters, ConfigError for a degree."""
    if parameters:
        raise ContractError("program", f"the block takes no parameters, got {sorted(parameters)}")
    spec = block_spec(world_size)
    return OpenedBlock(spec, program_digest(spec), BoundBlock(spec, rank))
