"""The reactive half of a worker: a frame in, frames out. No sockets, no clock, no array maths.

`expected` says which metadata the next frame must carry, so that the connection can refuse it by a
comparison of bytes; `handle` then only acts. Clauses cited are those of docs/spec/session.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from errors import ContractError, MisuseError
from program.spec import INPUT_PHASE, LOAD_PHASE, RESULT_PHASE, Loading, ProgramSpec
from wire.frame import Frame, Kind
from wire.limits import FLAG_FOLDED
from wire.metadata import (
    Ack,
    Command,
    Fence,
    Hello,
    Load,
    Result,
    Tensor,
    demand,
    payload_bytes,
)
from wire.session import Session, State
from worker.executor import Artifact, Buffer, Executor, ProgramOpener

HELLO_DTYPE = "<f4"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One frame to send; epoch and sequence are the connection's business."""

    kind: Kind
    metadata: bytes
    payload: Buffer = b""
    flags: int = 0


@dataclass(frozen=True, slots=True)
class Agreed:
    """What the agreement demands of a frame: its metadata and the length of its payload."""

    metadata: bytes
    payload_bytes: int


class WorkerCore:
    """One rank's side of a session, from HELLO to the end.

    session: the same object the connection advances; the core reads its state and teaches it the
    program at ACK. Raises ContractError for frames that break the agreement.
    """

    def __init__(self, rank: int, session: Session, open_program: ProgramOpener) -> None:
        self.rank = rank
        self.session = session
        self._open_program = open_program
        self._spec: ProgramSpec | None = None
        self._executor: Executor | None = None
        self._weights_loaded = 0
        self._operand: tuple[tuple[int, ...], Buffer] | None = None
        self._step = 0
        self._shape: tuple[int, ...] = ()
        # Tensor metadata depends only on (kind, stage, shape): encoded once, compared as bytes.
        self._encoded: dict[tuple[Kind, int, tuple[int, ...]], Agreed] = {}
        self._handlers: dict[Kind, Callable[[Frame], list[Outgoing]]] = {
            Kind.ACK: self._on_ack,
            Kind.WEIGHT: self._on_weight,
            Kind.LOAD: self._on_load,
            Kind.INPUT: self._on_input,
            Kind.COMMAND: self._on_command,
            Kind.REDUCTION: self._on_reduction,
        }

    def start(self) -> list[Outgoing]:
        """The frame a worker opens the session with."""
        hello = Hello(byte_order="little", dtype=HELLO_DTYPE, rank=self.rank)
        return [Outgoing(Kind.HELLO, hello.to_bytes())]

    def expected(self) -> Agreed | None:
        """Metadata the next frame must carry, byte for byte, and the length of its payload.

        None where only the frame itself can say (ACK, LOAD, INPUT, a COMMAND with a plan).
        """
        if self._spec is None:
            return None
        state = self.session.state
        if state is State.LOADING and self._weights_missing:
            return self._weight_metadata(self._weights_loaded)
        if state is State.FENCED:
            return self._tensor_metadata(Kind.REDUCTION, self.session.phase_index)
        if state is State.REDUCED or (state is State.FED and not self._spec.folded):
            phase = self._spec.phases[self._next_phase(state)]
            command = Command(phase=phase, plan=None, rank=self.rank, step=self._step)
            return Agreed(command.to_bytes(), 0)
        return None

    def handle(self, frame: Frame) -> list[Outgoing]:
        """Act on a frame that the session has accepted; returns what to send, in order."""
        handler = self._handlers.get(frame.kind)
        if handler is None:
            raise MisuseError(f"the session let a {frame.kind.name} through to a worker")
        return handler(frame)

    @property
    def _weights_missing(self) -> bool:
        spec = self._program
        return spec.loading is Loading.WIRE and self._weights_loaded < len(spec.weights)

    @property
    def _program(self) -> ProgramSpec:
        if self._spec is None:
            raise MisuseError("the session has no program before ACK")
        return self._spec

    @property
    def _model(self) -> Executor:
        if self._executor is None:
            raise MisuseError("the session has no executor before ACK")
        return self._executor

    def _next_phase(self, state: State) -> int:
        return self.session.phase_index + 1 if state is State.REDUCED else 0

    def _on_ack(self, frame: Frame) -> list[Outgoing]:
        ack = Ack.parse(frame.metadata)
        if ack.rank != self.rank:
            raise ContractError("metadata", f"rank is {ack.rank}, this worker is rank {self.rank}")
        if not 0 <= ack.rank < ack.world_size:
            raise ContractError("metadata", f"world_size {ack.world_size} has no rank {ack.rank}")
        opened = self._open_program(ack.program, ack.parameters, ack.rank, ack.world_size)
        if opened.digest != ack.program_digest:
            raise ContractError(
                "program",
                f"program_digest is {ack.program_digest}, this worker's {ack.program} over "
                f"{ack.world_size} ranks is {opened.digest}",
            )
        self._spec, self._executor = opened.spec, opened.executor
        self.session.set_program(opened.spec.phases, opened.spec.folded)
        return []

    def _weight_metadata(self, index: int) -> Agreed:
        spec = self._program
        weight = spec.weights[index]
        shape = weight.local_shape(self.rank, spec.world_size)
        return self._tensor(Kind.WEIGHT, index, LOAD_PHASE, weight.name, shape)

    def _on_weight(self, frame: Frame) -> list[Outgoing]:
        if not self._weights_missing:
            raise ContractError("kind", "a WEIGHT frame came after the last weight")
        self._model.load_tensor(self._program.weights[self._weights_loaded].name, frame.payload)
        self._weights_loaded += 1
        return []

    def _on_load(self, frame: Frame) -> list[Outgoing]:
        load = Load.parse(frame.metadata)
        self._check_rank_phase(load.rank, load.phase, LOAD_PHASE)
        if self._program.loading is not Loading.LOCAL:
            raise ContractError("kind", f"program {self._program.name} takes no LOAD")
        report = self._model.load_local(load.parameters)
        fence = Fence(phase=LOAD_PHASE, rank=self.rank, report=report, tensors=0)
        return [Outgoing(Kind.FENCE, fence.to_bytes())]

    def _on_input(self, frame: Frame) -> list[Outgoing]:
        if self._weights_missing:
            raise ContractError("kind", f"INPUT came after {self._weights_loaded} weights")
        tensor = Tensor.parse(frame.metadata)
        spec = self._program
        shape = (*tensor.shape[:2], spec.hidden_size)
        if len(tensor.shape) != 3 or tensor.shape != shape:
            raise ContractError(
                "metadata", f"shape is {list(tensor.shape)}, agreed [batch, sequence, hidden]"
            )
        agreed = self._tensor(Kind.INPUT, 0, INPUT_PHASE, "x", shape)
        demand(frame.metadata, agreed.metadata)
        self._operand = (shape, frame.payload)
        return []

    def _on_command(self, frame: Frame) -> list[Outgoing]:
        if self.session.phase_index == 0:
            self._begin_step(frame)
        return self._run_stage()

    def _begin_step(self, frame: Frame) -> None:
        command = Command.parse(frame.metadata)
        self._check_rank_phase(command.rank, command.phase, self._program.phases[0])
        if command.step != self._step:
            raise ContractError("metadata", f"step is {command.step}, agreed {self._step}")
        if self._operand is None and command.plan is None:
            raise ContractError("metadata", "a step needs an INPUT frame or a plan")
        self._shape = self._model.begin(command.plan, self._operand)

    def _run_stage(self) -> list[Outgoing]:
        stage = self.session.phase_index
        payload = self._model.partial(stage)
        metadata = self._tensor_metadata(Kind.PARTIAL, stage).metadata
        if self._program.folded:
            return [Outgoing(Kind.PARTIAL, metadata, payload, FLAG_FOLDED)]
        return [
            Outgoing(Kind.PARTIAL, metadata, payload),
            Outgoing(Kind.FENCE, self._fence_metadata(stage)),
        ]

    def _on_reduction(self, frame: Frame) -> list[Outgoing]:
        last = self.session.state is State.LAST
        spec = self._program
        # With FOLDED the session has already moved to the next phase's OPEN.
        folded = bool(frame.header.flags & FLAG_FOLDED)
        stage = self.session.phase_index - (1 if folded else 0)
        self._model.reduced(stage, frame.payload)
        if folded:
            return self._run_stage()
        return [self._result(self._model.finish(), spec)] if last else []

    def _result(self, artifact: Artifact, spec: ProgramSpec) -> Outgoing:
        result = Result(
            dtype=spec.partial_dtype.value,
            phase=RESULT_PHASE,
            rank=self.rank,
            report=artifact.report,
            shape=artifact.shape,
            step=self._step,
            tensor=artifact.tensor,
        )
        self._step += 1
        self._operand = None
        return Outgoing(Kind.RESULT, result.to_bytes(), artifact.payload)

    def _tensor_metadata(self, kind: Kind, stage: int) -> Agreed:
        phase = self._program.phases[stage]
        suffix = "partial" if kind is Kind.PARTIAL else "total"
        return self._tensor(kind, stage, phase, f"{phase}.{suffix}", self._shape)

    def _tensor(
        self, kind: Kind, index: int, phase: str, name: str, shape: tuple[int, ...]
    ) -> Agreed:
        key = (kind, index, shape)
        encoded = self._encoded.get(key)
        if encoded is None:
            dtype = self._program.partial_dtype.value
            tensor = Tensor(dtype=dtype, phase=phase, rank=self.rank, shape=shape, tensor=name)
            encoded = Agreed(tensor.to_bytes(), payload_bytes(shape, dtype))
            self._encoded[key] = encoded
        return encoded

    def _fence_metadata(self, stage: int) -> bytes:
        phase = self._program.phases[stage]
        return Fence(phase=phase, rank=self.rank, report=None, tensors=1).to_bytes()

    def _check_rank_phase(self, rank: int, phase: str, agreed: str) -> None:
        if rank != self.rank:
            raise ContractError("metadata", f"rank is {rank}, this worker is rank {self.rank}")
        if phase != agreed:
            raise ContractError("metadata", f"phase is {phase!r}, agreed {agreed!r}")

