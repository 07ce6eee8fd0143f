"""Every frame of a case in the order of docs/spec/session.md S6, as the program predicts it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from evidence.matrix import FIRST_EPOCH, Case, CaseFault
from program.block import RESULT_TENSOR, block_spec, operand_shape
from program.digest import program_digest
from program.spec import LOAD_PHASE, RESULT_PHASE
from wire.agreed import Agreed, AgreedMetadata
from wire.frame import Kind, Side
from wire.metadata import Ack, Hello
from wire.session import HELLO_PHASE

STEP = 0


@dataclass(frozen=True)
class Step:
    """One frame. phase: the one in which the coordinator would report its failure (S10).

    name: of the tensor, in WEIGHT frames.
    """

    sender: Side
    rank: int
    kind: Kind
    phase: str
    epoch: int
    sequence: int
    agreed: Agreed
    name: str = ""

    def describe(self) -> str:
        verb = "sent to" if self.sender is Side.COORDINATOR else "received from"
        return f"{self.kind.name} {verb} rank {self.rank}"


class _Writer:
    """Collects the steps of one run and counts sequences (S4)."""

    def __init__(self, ranks: int) -> None:
        self.steps: list[Step] = []
        self.spec = block_spec(ranks)
        self.agreed = [AgreedMetadata(r, self.spec.phases, "<f4") for r in range(ranks)]
        self._sent: Counter[tuple[int, Side]] = Counter()

    def add(self, rank: int, kind: Kind, phase: str, agreed: Agreed, name: str = "") -> None:
        epoch = 0 if kind is Kind.HELLO else FIRST_EPOCH
        sequence = self._sent[rank, kind.sender]
        self._sent[rank, kind.sender] += 1
        self.steps.append(Step(kind.sender, rank, kind, phase, epoch, sequence, agreed, name))


@lru_cache(maxsize=64)
def clean_script(ranks: int, batch: int, sequence: int) -> tuple[Step, ...]:
    """Every frame of a clean run of the block."""
    writer, shape, world = _Writer(ranks), operand_shape(batch, sequence), range(ranks)
    agreed, phases = writer.agreed, writer.spec.phases
    for rank in world:
        hello = Hello(byte_order="little", dtype="<f4", rank=rank).to_bytes()
        writer.add(rank, Kind.HELLO, HELLO_PHASE, Agreed(hello, 0))
    for rank in world:
        writer.add(rank, Kind.ACK, HELLO_PHASE, _ack(writer, rank))
    for rank in world:
        for weight in writer.spec.weights:
            local = agreed[rank].weight(weight.name, weight.local_shape(rank, ranks))
            writer.add(rank, Kind.WEIGHT, LOAD_PHASE, local, weight.name)
    for rank in world:
        writer.add(rank, Kind.INPUT, LOAD_PHASE, agreed[rank].operand(shape))
        writer.add(rank, Kind.COMMAND, LOAD_PHASE, agreed[rank].command(0, STEP))
    for stage, phase in enumerate(phases):
        for rank in world:
            writer.add(rank, Kind.PARTIAL, phase, agreed[rank].partial(stage, shape))
            writer.add(rank, Kind.FENCE, phase, agreed[rank].fence(stage))
        for rank in world:
            writer.add(rank, Kind.REDUCTION, phase, agreed[rank].reduction(stage, shape))
            if stage + 1 < len(phases):
                writer.add(rank, Kind.COMMAND, phase, agreed[rank].command(stage + 1, STEP))
    for rank in world:
        result = agreed[rank].result(RESULT_TENSOR, shape, STEP)
        writer.add(rank, Kind.RESULT, RESULT_PHASE, result)
    return tuple(writer.steps)


def _ack(writer: _Writer, rank: int) -> Agreed:
    spec = writer.spec
    ack = Ack(
        parameters={},
        program=spec.name,
        program_digest=program_digest(spec),
        rank=rank,
        world_size=spec.world_size,
    )
    return Agreed(ack.to_bytes(), 0)


def case_script(case: Case) -> tuple[Step, ...]:
    """The frames of a case; those of a fault case end where its fault is detected."""
    steps = clean_script(case.ranks, case.batch, case.sequence)
    if case.fault is None:
        return steps
    return steps[: _detected_at(steps, case.fault) + 1]


def _detected_at(steps: tuple[Step, ...], fault: CaseFault) -> int:
    """Index of F or L of E7's fault table: the first or the last frame owed in the phase."""
    owed = [
        index
        for index, step in enumerate(steps)
        if (step.sender, step.rank, step.phase) == (Side.WORKER, fault.rank, fault.phase)
    ]
    return owed[-1 if fault.kind == "cancellation_race" else 0]


def other_rank(step: Step, ranks: int) -> Step:
    """The frame as `metadata_mismatch` sends it: its metadata names the next rank."""
    own, other = (b'"rank":%d,' % number for number in (step.rank, (step.rank + 1) % ranks))
    metadata = step.agreed.metadata.replace(own, other)
    return replace(step, agreed=step.agreed._replace(metadata=metadata))
