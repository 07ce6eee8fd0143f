"""The reactive half of a worker: a frame in, frames out. No sockets, no clock, no array maths.

`expected` says which metadata the next frame must carry, so that the connection can refuse it by a
comparison of bytes; `handle` then only acts. Clauses cited are those of docs/spec/session.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from errors import ContractError, MisuseError
from program.spec import LOAD_PHASE, PLAN_PHASE, RESULT_PHASE, Loading, ProgramSpec
from wire.agreed import TENSOR_DTYPE, Agreed, AgreedMetadata
from wire.frame import Buffer, Frame, Kind
from wire.limits import FLAG_FOLDED
from wire.metadata import Ack, Command, Fence, Hello, Load, Result, Tensor, demand
from wire.session import Session, State
from worker.executor import Artifact, Executor, ProgramOpener

HELLO_DTYPE = "<f4"


class Outgoing(NamedTuple):
    """One frame to send; epoch and sequence are the connection's business."""

    kind: Kind
    metadata: bytes
    payload: Buffer = b""
    flags: int = 0


class _Running(NamedTuple):
    """What ACK settles for the rest of the session."""

    spec: ProgramSpec
    executor: Executor
    agreed: AgreedMetadata


class WorkerCore:
    """One rank's side of a session, from HELLO to the end.

    session: the same object the connection advances; the core reads its state and teaches it the
    program at ACK. Raises ContractError for frames that break the agreement.
    """

    def __init__(self, rank: int, session: Session, open_program: ProgramOpener) -> None:
        self.rank = rank
        self.session = session
        self._open_program = open_program
        self._running: _Running | None = None
        self._weights_loaded = 0
        self._operand: tuple[tuple[int, ...], Buffer] | None = None
        # The shape of the last operand: the next step's is mostly the same.
        self._operand_shape: tuple[int, ...] | None = None
        self._step = 0
        self._shape: tuple[int, ...] = ()
        self._handlers: dict[Kind, Callable[[_Running, Frame], list[Outgoing]]] = {
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
        """What the next frame must be; None where only the frame itself can say.

        That is ACK, LOAD, INPUT (its shape), and a COMMAND with a plan.
        """
        if self._running is None:
            return None
        spec, _, agreed = self._running
        match self.session.state:
            case State.LOADING if self._weights_missing(spec):
                return self._weight(self._running)
            case State.FED | State.AGREED:
                return agreed.command(0, self._step)
            case State.FENCED:
                return agreed.reduction(self.session.phase_index, self._shape)
            case State.REDUCED:
                return agreed.command(self.session.phase_index + 1, self._step)
            case _:
                return None

    def handle(self, frame: Frame) -> list[Outgoing]:
        """Act on a frame that the session has accepted; returns what to send, in order."""
        if self._running is None:
            return self._on_ack(frame)
        handler = self._handlers.get(frame.kind)
        if handler is None:
            raise MisuseError(f"the session let a {frame.kind.name} through to a worker")
        return handler(self._running, frame)

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
        spec = opened.spec
        self.session.set_program(spec.phases, spec.folded, spec.planned)
        agreed = AgreedMetadata(self.rank, spec.phases, spec.partial_dtype.value)
        self._running = _Running(spec, opened.executor, agreed)
        return []

    def _weights_missing(self, spec: ProgramSpec) -> bool:
        return spec.loading is Loading.WIRE and self._weights_loaded < len(spec.weights)

    def _weight(self, running: _Running) -> Agreed:
        weight = running.spec.weights[self._weights_loaded]
        shape = weight.local_shape(self.rank, running.spec.world_size)
        return running.agreed.weight(weight.name, shape)

    def _on_weight(self, running: _Running, frame: Frame) -> list[Outgoing]:
        if not self._weights_missing(running.spec):
            raise ContractError("kind", "a WEIGHT frame came after the last weight")
        name = running.spec.weights[self._weights_loaded].name
        running.executor.load_tensor(name, frame.payload)
        self._weights_loaded += 1
        return []

    def _on_load(self, running: _Running, frame: Frame) -> list[Outgoing]:
        load = Load.parse(frame.metadata)
        self._check_rank_phase(load.rank, load.phase, LOAD_PHASE)
        if running.spec.loading is not Loading.LOCAL:
            raise ContractError("kind", f"program {running.spec.name} takes no LOAD")
        report = running.executor.load_local(load.parameters)
        fence = Fence(phase=LOAD_PHASE, rank=self.rank, report=dict(report), tensors=0)
        return [Outgoing(Kind.FENCE, fence.to_bytes())]

    def _on_input(self, running: _Running, frame: Frame) -> list[Outgoing]:
        if self._weights_missing(running.spec):
            raise ContractError("kind", f"INPUT came after {self._weights_loaded} weights")
        if self._operand_shape is not None:
            agreed = running.agreed.operand(self._operand_shape)
            if frame.metadata == agreed.metadata:
                self._operand = (self._operand_shape, frame.payload)
                return []
        shape = Tensor.parse(frame.metadata).shape
        if len(shape) != 3 or shape[2] != running.spec.hidden_size:
            raise ContractError(
                "metadata",
                f"shape is {list(shape)}, agreed [batch, sequence, {running.spec.hidden_size}]",
            )
        demand(frame.metadata, running.agreed.operand(shape).metadata)
        running.executor.accept_operand(shape)
        self._operand_shape = shape
        self._operand = (shape, frame.payload)
        return []

    def _on_command(self, running: _Running, frame: Frame) -> list[Outgoing]:
        if self.session.state is State.PLANNED:
            return self._on_plan(running, Command.parse(frame.metadata))
        if self.session.phase_index == 0:
            if not running.spec.planned and self._operand is None:
                raise ContractError("metadata", f"a step of {running.spec.name} needs INPUT")
            self._shape = running.executor.begin(self._operand)
        return self._run_stage(running)

    def _on_plan(self, running: _Running, command: Command) -> list[Outgoing]:
        """Accept, and say what was accepted; nothing changes before every rank has done so."""
        self._check_rank_phase(command.rank, command.phase, PLAN_PHASE)
        if command.step != self._step:
            raise ContractError("metadata", f"step is {command.step}, agreed {self._step}")
        if command.plan is None:
            raise ContractError("metadata", "plan is null, agreed an object")
        plan_digest = running.executor.accept(command.plan)
        return [Outgoing(Kind.FENCE, running.agreed.plan_fence(plan_digest).metadata)]

    def _run_stage(self, running: _Running) -> list[Outgoing]:
        spec, executor, agreed = running
        stage = self.session.phase_index
        payload = executor.partial(stage)
        metadata = agreed.partial(stage, self._shape).metadata
        if spec.folded:
            return [Outgoing(Kind.PARTIAL, metadata, payload, FLAG_FOLDED)]
        return [
            Outgoing(Kind.PARTIAL, metadata, payload),
            Outgoing(Kind.FENCE, agreed.fence(stage).metadata),
        ]

    def _on_reduction(self, running: _Running, frame: Frame) -> list[Outgoing]:
        # With FOLDED the session has already moved to the next phase.
        folded = bool(frame.header.flags & FLAG_FOLDED)
        stage = self.session.phase_index - (1 if folded else 0)
        running.executor.reduced(stage, frame.payload)
        if folded:
            return self._run_stage(running)
        if self.session.state is State.LAST:
            return [self._result(running, running.executor.finish())]
        return []

    def _result(self, running: _Running, artifact: Artifact) -> Outgoing:
        step, self._step, self._operand = self._step, self._step + 1, None
        if artifact.report is None:
            metadata = running.agreed.result(artifact.tensor, artifact.shape, step).metadata
        else:
            metadata = Result(
                dtype=TENSOR_DTYPE,
                phase=RESULT_PHASE,
                rank=self.rank,
                report=dict(artifact.report),
                shape=artifact.shape,
                step=step,
                tensor=artifact.tensor,
            ).to_bytes()
        return Outgoing(Kind.RESULT, metadata, artifact.payload)

    def _check_rank_phase(self, rank: int, phase: str, agreed: str) -> None:
        if rank != self.rank:
            raise ContractError("metadata", f"rank is {rank}, this worker is rank {self.rank}")
        if phase != agreed:
            raise ContractError("metadata", f"phase is {phase!r}, agreed {agreed!r}")
