"""What a worker's core needs from a model: the Executor protocol.

The core moves frames; an executor does the rank-local maths. Both sides of this line speak in raw
buffers (little-endian, C order), so the core needs no array library and the executor no frames.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from program.spec import ProgramSpec
from wire.canonical import JsonValue
from wire.frame import Buffer


class Artifact(Protocol):
    """What a rank hands back at the end of a step: one tensor and an optional report."""

    @property
    def tensor(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def payload(self) -> Buffer: ...
    @property
    def report(self) -> Mapping[str, JsonValue] | None: ...


class Executor(Protocol):
    """The rank-local half of a program. Calls come in session order, never concurrently.

    A method that can't accept outside data raises ContractError and leaves the state unchanged.
    """

    def load_tensor(self, name: str, payload: Buffer) -> None:
        """Keep one weight's rank-local slice, sent in a WEIGHT frame."""

    def load_local(self, parameters: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        """Read this rank's slices from a checkpoint (programs whose loading is LOCAL).

        Returns the report that the load's fence carries.
        """

    def accept_operand(self, shape: tuple[int, ...]) -> None:
        """Judge the shape of an INPUT frame (programs without plans), before its step starts."""

    def accept(self, plan: Mapping[str, JsonValue]) -> str:
        """Judge the plan of the next step (programs with plans) and return its digest.

        Changes nothing that a later step could see, whatever the answer.
        """

    def begin(self, operand: tuple[tuple[int, ...], Buffer] | None) -> tuple[int, ...]:
        """Start a step, with the plan accepted before if the program has plans.

        Returns the shape of the step's partials and reductions.
        operand: shape [batch, sequence, hidden] and elements of the INPUT frame, if there was one.
        """

    def partial(self, stage: int) -> Buffer:
        """Run up to and including the stage's row-parallel projection; this rank's summand."""

    def reduced(self, stage: int, total: Buffer) -> None:
        """Take the sum over ranks of a stage's partials."""

    def finish(self) -> Artifact:
        """End the step and hand back what this rank produced."""


class Opened(Protocol):
    """A program as one rank will run it."""

    @property
    def spec(self) -> ProgramSpec: ...
    @property
    def digest(self) -> str: ...
    @property
    def executor(self) -> Executor: ...


class ProgramOpener(Protocol):
    """Turns the agreement of an ACK into a program; the composition root binds it to a model."""

    def __call__(
        self, program: str, parameters: Mapping[str, JsonValue], rank: int, world_size: int
    ) -> Opened:
        """Raises ContractError (`contract.program`) for a program this worker doesn't have."""
