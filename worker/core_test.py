"""The worker's core in conversation: what it answers, what it demands, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from errors import ContractError, MisuseError
from program.canonical import digest
from program.digest import program_digest
from program.spec import Dtype, ProgramSpec
from wire.agreed import AgreedMetadata
from wire.connection import Connection
from wire.frame import Buffer, Frame, Header, Kind, Side
from wire.limits import FLAG_FOLDED
from wire.metadata import Ack, Command, Fence, Hello, Load, Result, Tensor
from wire.session import Session, State
from worker.core import Outgoing, WorkerCore
from worker.toy_program import (
    HIDDEN_SIZE,
    REFUSED,
    STAGES,
    ToyExecutor,
    ToyPrograms,
    answer,
    elements,
    local_spec,
    wire_spec,
)

RANK, WORLD_SIZE, EPOCH = 1, 2, 9
SHAPE = (1, 3, HIDDEN_SIZE)
OPERAND = elements(SHAPE, 0.5, Dtype.FLOAT32)
TOTAL = elements(SHAPE, 8.0, Dtype.FLOAT32)
PLAN = {"rows": 3}
ROWS = (3, HIDDEN_SIZE)


class Conversation:
    """A core behind a real connection; the other end sends whatever a test says."""

    def __init__(self, spec: ProgramSpec) -> None:
        self.spec = spec
        self.programs = ToyPrograms()
        self.agreed = AgreedMetadata(RANK, spec.phases, spec.partial_dtype.value)
        session = Session()
        self.core = WorkerCore(RANK, session, self.programs)
        self._worker = Connection(Side.WORKER, session, RANK)
        ours = Session(spec.phases, spec.folded, spec.planned)
        ours.adopt_epoch(EPOCH)
        self._coordinator = Connection(Side.COORDINATOR, ours, RANK)
        self._answer(self.core.start())

    @property
    def executor(self) -> ToyExecutor:
        return self.programs.opened[RANK]

    def send(
        self, kind: Kind, metadata: bytes, payload: Buffer = b"", flags: int = 0
    ) -> list[Outgoing]:
        """One frame to the core, which may refuse it; what it answers."""
        for buffer in self._coordinator.send(kind, metadata, payload, flags=flags):
            self._worker.receive_data(buffer)
        frame = self._worker.next_frame(*(self.core.expected() or (None, None)))
        assert frame is not None
        outgoing = self.core.handle(frame)
        self._answer(outgoing)
        return outgoing

    def _answer(self, outgoing: list[Outgoing]) -> None:
        for out in outgoing:
            for buffer in self._worker.send(out.kind, out.metadata, out.payload, flags=out.flags):
                self._coordinator.receive_data(buffer)
            assert self._coordinator.next_frame() is not None

    def acknowledge(self) -> list[Outgoing]:
        return self.send(Kind.ACK, acknowledgement(self.spec).to_bytes())

    def load(self) -> None:
        """ACK, and all weights."""
        self.acknowledge()
        for weight in self.spec.weights:
            shape = weight.local_shape(RANK, WORLD_SIZE)
            payload = elements(shape, 0.25, Dtype.FLOAT32)
            assert self.send(Kind.WEIGHT, self.agreed.weight(weight.name, shape)[0], payload) == []

    def loaded_local(self) -> None:
        self.acknowledge()
        self.send(Kind.LOAD, Load({"path": "p"}, "load", RANK).to_bytes())


def acknowledgement(spec: ProgramSpec) -> Ack:
    return Ack(
        parameters={},
        program=spec.name,
        program_digest=program_digest(spec),
        rank=RANK,
        world_size=WORLD_SIZE,
    )


@pytest.fixture
def wire() -> Conversation:
    return Conversation(wire_spec(WORLD_SIZE))


@pytest.fixture
def local() -> Conversation:
    return Conversation(local_spec(WORLD_SIZE))


def command(stage: int, step: int = 0) -> bytes:
    return Command(STAGES[stage], None, RANK, step).to_bytes()


def plan_command(step: int = 0, phase: str = "plan", rank: int = RANK) -> bytes:
    return Command(phase, dict(PLAN), rank, step).to_bytes()


def reduction(stage: int, dtype: str = "<f4", shape: tuple[int, ...] = SHAPE) -> bytes:
    return Tensor(dtype, STAGES[stage], RANK, shape, f"{STAGES[stage]}.total").to_bytes()


OPERAND_TENSOR = Tensor("<f4", "input", RANK, SHAPE, "x")


def operand(shape: tuple[int, ...] = SHAPE) -> bytes:
    return replace(OPERAND_TENSOR, shape=shape).to_bytes()


def test_it_begins_with_hello() -> None:
    core = WorkerCore(5, Session(), ToyPrograms())
    assert core.start() == [Outgoing(Kind.HELLO, Hello("little", "<f4", 5).to_bytes())]
    assert core.expected() is None


def refused(code: str, act: Callable[[], object]) -> None:
    with pytest.raises(ContractError) as refusal:
        act()
    assert refusal.value.code == code


ACK = acknowledgement(wire_spec(WORLD_SIZE))
ACKS = {
    "another rank": (replace(ACK, rank=0), "contract.metadata"),
    "no such rank": (replace(ACK, world_size=RANK), "contract.metadata"),
    "unknown program": (replace(ACK, program="toy/other"), "contract.program"),
    "another digest": (replace(ACK, program_digest="0" * 64), "contract.program"),
    "another degree": (replace(ACK, world_size=4), "contract.program"),
}


@pytest.mark.parametrize(("ack", "code"), ACKS.values(), ids=ACKS)
def test_an_agreement_it_cannot_keep(wire: Conversation, ack: Ack, code: str) -> None:
    refused(code, lambda: wire.send(Kind.ACK, ack.to_bytes()))


def test_a_step_with_frames_of_their_own(wire: Conversation) -> None:
    """Twice, with other operands: the step number moves on and nothing is left of the first."""
    wire.load()
    wire.executor.journal.clear()
    for step, value in enumerate((0.5, 1.5)):
        payload = elements(SHAPE, value, Dtype.FLOAT32)
        assert wire.send(Kind.INPUT, operand(), payload) == []
        for stage, phase in enumerate(STAGES):
            partial, fence = wire.send(Kind.COMMAND, command(stage, step))
            expected = elements(SHAPE, answer(RANK, stage), Dtype.FLOAT32)
            name = f"{phase}.partial"
            metadata = Tensor("<f4", phase, RANK, SHAPE, name).to_bytes()
            assert partial == (Kind.PARTIAL, metadata, expected, 0)
            assert fence == (Kind.FENCE, Fence(phase, RANK, None, 1).to_bytes(), b"", 0)
            answered = wire.send(Kind.REDUCTION, reduction(stage), TOTAL)
        (result,) = answered
        metadata = Result("<f4", "result", RANK, SHAPE, "z", None, step).to_bytes()
        assert (result.kind, result.metadata) == (Kind.RESULT, metadata)
        assert wire.executor.journal == [
            ("begin", payload),
            ("partial", 0),
            ("reduced", 0, TOTAL),
            ("partial", 1),
            ("reduced", 1, TOTAL),
            ("finish",),
        ]
        wire.executor.journal.clear()


def test_a_step_with_folded_frames_and_a_plan(local: Conversation) -> None:
    """Only when the plan is accepted, and the command has come, does anything begin."""
    local.acknowledge()
    load = Load({"path": "p"}, "load", RANK).to_bytes()
    (fence,) = local.send(Kind.LOAD, load)
    report = {"bytes": 1000 + RANK}
    assert fence == (Kind.FENCE, Fence("load", RANK, report, 0).to_bytes(), b"", 0)
    total = elements(ROWS, 8.0, Dtype.FLOAT64)
    for step in range(2):
        local.executor.journal.clear()
        (accepted,) = local.send(Kind.COMMAND, plan_command(step))
        agreed = Fence("plan", RANK, {"plan_digest": digest(PLAN)}, 0)
        assert accepted == (Kind.FENCE, agreed.to_bytes(), b"", 0)
        assert local.executor.journal == [("accept", PLAN)]
        (first,) = local.send(Kind.COMMAND, command(0, step))
        metadata = Tensor("<f8", "one", RANK, ROWS, "one.partial").to_bytes()
        expected = elements(ROWS, answer(RANK, 0), Dtype.FLOAT64)
        assert first == (Kind.PARTIAL, metadata, expected, FLAG_FOLDED)
        (second,) = local.send(Kind.REDUCTION, reduction(0, "<f8", ROWS), total, FLAG_FOLDED)
        assert second.flags == FLAG_FOLDED
        assert second.payload == elements(ROWS, answer(RANK, 1), Dtype.FLOAT64)
        (result,) = local.send(Kind.REDUCTION, reduction(1, "<f8", ROWS), total)
        metadata = Result("<f4", "result", RANK, ROWS, "z", {"rows": 3}, step).to_bytes()
        assert (result.kind, result.metadata) == (Kind.RESULT, metadata)
        assert local.executor.journal[1:] == [
            ("begin", None),
            ("partial", 0),
            ("reduced", 0, total),
            ("partial", 1),
            ("reduced", 1, total),
            ("finish",),
        ]


def test_weights_arrive_by_name_in_order(wire: Conversation) -> None:
    wire.load()
    shapes = [weight.local_shape(RANK, WORLD_SIZE) for weight in wire.spec.weights]
    assert wire.executor.journal == [
        ("load_tensor", weight.name, elements(shape, 0.25, Dtype.FLOAT32))
        for weight, shape in zip(wire.spec.weights, shapes, strict=True)
    ]


def test_what_is_demanded_where(wire: Conversation) -> None:
    """None only where the frame itself must say what it is."""
    agreed, core = wire.agreed, wire.core
    assert core.expected() is None
    wire.acknowledge()
    for weight in wire.spec.weights:
        shape = weight.local_shape(RANK, WORLD_SIZE)
        wanted = agreed.weight(weight.name, shape)
        assert core.expected() == wanted
        wire.send(Kind.WEIGHT, wanted.metadata, bytes(wanted.payload_bytes))
    assert core.expected() is None
    for step in range(2):
        wire.send(Kind.INPUT, operand(), OPERAND)
        for stage in range(2):
            assert core.expected() == agreed.command(stage, step)
            wire.send(Kind.COMMAND, command(stage, step))
            assert core.expected() == agreed.reduction(stage, SHAPE)
            wire.send(Kind.REDUCTION, reduction(stage), TOTAL)
        assert core.expected() is None


WEIGHTS = {
    "another name": Tensor("<f4", "load", RANK, (4, HIDDEN_SIZE), "down"),
    "another shape": Tensor("<f4", "load", RANK, (8, HIDDEN_SIZE), "up"),
    "another dtype": Tensor("<f8", "load", RANK, (4, HIDDEN_SIZE), "up"),
    "another rank": Tensor("<f4", "load", 0, (4, HIDDEN_SIZE), "up"),
    "another phase": Tensor("<f4", "one", RANK, (4, HIDDEN_SIZE), "up"),
}


@pytest.mark.parametrize("tensor", WEIGHTS.values(), ids=WEIGHTS)
def test_another_weight_than_the_next_one(wire: Conversation, tensor: Tensor) -> None:
    wire.acknowledge()
    payload = elements(tensor.shape, 0.0, Dtype(tensor.dtype))
    refused("contract.metadata", lambda: wire.send(Kind.WEIGHT, tensor.to_bytes(), payload))
    assert wire.executor.journal == []


def test_one_weight_too_many(wire: Conversation) -> None:
    wire.load()
    tensor = Tensor("<f4", "load", RANK, (1,), "more")
    refused("contract.kind", lambda: wire.send(Kind.WEIGHT, tensor.to_bytes(), bytes(4)))


def test_a_load_for_a_program_with_weight_frames(wire: Conversation) -> None:
    wire.load()
    load = Load({}, "load", RANK).to_bytes()
    refused("contract.kind", lambda: wire.send(Kind.LOAD, load))


def test_a_load_in_place_of_a_weight(wire: Conversation) -> None:
    wire.acknowledge()
    load = Load({}, "load", RANK).to_bytes()
    refused("contract.metadata", lambda: wire.send(Kind.LOAD, load))


@pytest.mark.parametrize(
    ("load", "code"),
    [
        (Load({}, "load", 0), "contract.metadata"),
        (Load({}, "one", RANK), "contract.metadata"),
        (Load({REFUSED: 1}, "load", RANK), "contract.allocation"),
    ],
)
def test_a_load_it_cannot_do(local: Conversation, load: Load, code: str) -> None:
    local.acknowledge()
    refused(code, lambda: local.send(Kind.LOAD, load.to_bytes()))


INPUTS = {
    "two dimensions": replace(OPERAND_TENSOR, shape=(3, HIDDEN_SIZE)),
    "another width": replace(OPERAND_TENSOR, shape=(1, 3, 5)),
    "another name": replace(OPERAND_TENSOR, tensor="y"),
    "another phase": replace(OPERAND_TENSOR, phase="load"),
    "another rank": replace(OPERAND_TENSOR, rank=0),
    "another dtype": replace(OPERAND_TENSOR, dtype="<f8"),
}


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("tensor", INPUTS.values(), ids=INPUTS)
def test_an_operand_that_is_none(wire: Conversation, tensor: Tensor, again: bool) -> None:
    """Also in a later step, where the shape of the last one is known."""
    wire.load()
    if again:
        wire.send(Kind.INPUT, operand(), OPERAND)
        for stage in range(2):
            wire.send(Kind.COMMAND, command(stage))
            wire.send(Kind.REDUCTION, reduction(stage), TOTAL)
    payload = elements(tensor.shape, 0.0, Dtype(tensor.dtype))
    refused("contract.metadata", lambda: wire.send(Kind.INPUT, tensor.to_bytes(), payload))


def test_an_operand_may_change_its_shape(wire: Conversation) -> None:
    wire.load()
    for step, shape in enumerate([SHAPE, (2, 1, HIDDEN_SIZE), SHAPE]):
        payload = elements(shape, 1.0, Dtype.FLOAT32)
        wire.send(Kind.INPUT, operand(shape=shape), payload)
        for stage in range(2):
            partial, _ = wire.send(Kind.COMMAND, command(stage, step))
            assert Tensor.parse(partial.metadata).shape == shape
            wire.send(Kind.REDUCTION, reduction(stage, shape=shape), payload)


def test_an_operand_before_all_weights(wire: Conversation) -> None:
    wire.acknowledge()
    refused("contract.metadata", lambda: wire.send(Kind.INPUT, operand(), OPERAND))


def test_a_command_without_an_operand(wire: Conversation) -> None:
    wire.load()
    refused("contract.metadata", lambda: wire.send(Kind.COMMAND, command(0)))
    assert [call[0] for call in wire.executor.journal] == ["load_tensor"] * 2


@pytest.mark.parametrize("metadata", [command(1), command(0, step=1)])
def test_another_command_than_the_next_one(wire: Conversation, metadata: bytes) -> None:
    wire.load()
    wire.send(Kind.INPUT, operand(), OPERAND)
    refused("contract.metadata", lambda: wire.send(Kind.COMMAND, metadata))


PLANS = {
    "another step": plan_command(step=1),
    "another phase": plan_command(phase="one"),
    "another rank": plan_command(rank=0),
    "no plan": Command("plan", None, RANK, 0).to_bytes(),
    "refused by the program": Command("plan", {REFUSED: 1}, RANK, 0).to_bytes(),
}


@pytest.mark.parametrize("metadata", PLANS.values(), ids=PLANS)
def test_a_plan_it_cannot_accept(local: Conversation, metadata: bytes) -> None:
    local.loaded_local()
    refused("contract.metadata", lambda: local.send(Kind.COMMAND, metadata))
    assert "begin" not in [call[0] for call in local.executor.journal]


def test_a_sum_of_another_stage(wire: Conversation) -> None:
    wire.load()
    wire.send(Kind.INPUT, operand(), OPERAND)
    wire.send(Kind.COMMAND, command(0))
    refused("contract.metadata", lambda: wire.send(Kind.REDUCTION, reduction(1), TOTAL))


def test_what_a_session_never_lets_through_is_a_bug(wire: Conversation) -> None:
    wire.load()
    header = Header(Kind.PARTIAL, 0, EPOCH, 0, 0, 0, 0)
    with pytest.raises(MisuseError):
        wire.core.handle(Frame(header, b"", b""))


def test_the_session_is_the_connections(wire: Conversation) -> None:
    wire.load()
    assert wire.core.session.state is State.LOADING
    assert wire.core.session.epoch == EPOCH
