"""The smallest programs that have everything: for tests of the worker's core and of the group.

Their executor notes what it is asked to do, and its numbers are easy to predict: rank r answers
stage s with 1 + 10 s + 100 r in every element.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field

from errors import ContractError
from program.canonical import digest
from program.digest import program_digest
from program.partition import Columns, Rows
from program.spec import Dtype, Loading, ProgramSpec, Stage, WeightSpec
from wire.canonical import JsonValue
from wire.frame import Buffer

HIDDEN_SIZE = 4
RESULT_TENSOR = "z"
STAGES = ("one", "two")
# Load parameter or plan that the executor refuses.
REFUSED = "refused"


def wire_spec(world_size: int) -> ProgramSpec:
    """With WEIGHT and INPUT frames, fences and commands of their own, like the block."""
    weights = (
        WeightSpec("up", (8, HIDDEN_SIZE), Rows(4)),
        WeightSpec("down", (HIDDEN_SIZE, 8), Columns(4)),
    )
    return ProgramSpec(
        name="toy/wire",
        world_size=world_size,
        hidden_size=HIDDEN_SIZE,
        weights=weights,
        stages=tuple(Stage(phase) for phase in STAGES),
        loading=Loading.WIRE,
        artifact_ranks=tuple(range(world_size)),
    )


def local_spec(world_size: int) -> ProgramSpec:
    """With LOAD, plans and folded frames, like a model."""
    return ProgramSpec(
        name="toy/local",
        world_size=world_size,
        hidden_size=HIDDEN_SIZE,
        weights=(),
        stages=tuple(Stage(phase) for phase in STAGES),
        loading=Loading.LOCAL,
        artifact_ranks=(0,),
        partial_dtype=Dtype.FLOAT64,
        folded=True,
        planned=True,
    )


SPECS = {"toy/wire": wire_spec, "toy/local": local_spec}


@dataclass(frozen=True)
class ToyArtifact:
    tensor: str
    shape: tuple[int, ...]
    payload: Buffer
    report: Mapping[str, JsonValue] | None


@dataclass
class ToyExecutor:
    """journal: what it was asked to do, in order."""

    spec: ProgramSpec
    rank: int
    journal: list[tuple[object, ...]] = field(default_factory=list)
    _shape: tuple[int, ...] = ()
    _rows: int = 0

    def load_tensor(self, name: str, payload: Buffer) -> None:
        self.journal.append(("load_tensor", name, bytes(payload)))

    def load_local(self, parameters: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
        self.journal.append(("load_local", dict(parameters)))
        if REFUSED in parameters:
            raise ContractError("allocation", "no such checkpoint here")
        return {"bytes": 1000 + self.rank}

    def accept_operand(self, shape: tuple[int, ...]) -> None:
        """Any shape will do."""

    def accept(self, plan: Mapping[str, JsonValue]) -> str:
        self.journal.append(("accept", dict(plan)))
        if REFUSED in plan:
            raise ContractError("metadata", "no such plan")
        self._rows = int(str(plan["rows"]))
        return digest(plan)

    def begin(self, operand: tuple[tuple[int, ...], Buffer] | None) -> tuple[int, ...]:
        shape = (self._rows, HIDDEN_SIZE) if operand is None else operand[0]
        payload = None if operand is None else bytes(operand[1])
        self.journal.append(("begin", payload))
        self._shape = shape
        return shape

    def partial(self, stage: int) -> Buffer:
        self.journal.append(("partial", stage))
        return elements(self._shape, answer(self.rank, stage), self.spec.partial_dtype)

    def reduced(self, stage: int, total: Buffer) -> None:
        self.journal.append(("reduced", stage, bytes(total)))

    def finish(self) -> ToyArtifact:
        self.journal.append(("finish",))
        report = {"rows": self._shape[0]} if self.spec.planned else None
        payload = elements(self._shape, 7.0, Dtype.FLOAT32)
        return ToyArtifact(RESULT_TENSOR, self._shape, payload, report)


@dataclass(frozen=True)
class ToyOpened:
    spec: ProgramSpec
    digest: str
    executor: ToyExecutor


class ToyPrograms:
    """A ProgramOpener. opened: the executors, by rank."""

    def __init__(self) -> None:
        self.opened: dict[int, ToyExecutor] = {}

    def __call__(
        self, program: str, parameters: Mapping[str, JsonValue], rank: int, world_size: int
    ) -> ToyOpened:
        if program not in SPECS:
            raise ContractError("program", f"program is {program!r}")
        spec = SPECS[program](world_size)
        self.opened[rank] = ToyExecutor(spec, rank)
        return ToyOpened(spec, program_digest(spec), self.opened[rank])


def answer(rank: int, stage: int) -> float:
    """Every element of a rank's partial."""
    return 1.0 + 10.0 * stage + 100.0 * rank


def elements(shape: tuple[int, ...], value: float, dtype: Dtype) -> bytes:
    """A payload whose elements are all the same. Exact on any little-endian machine."""
    count = 1
    for extent in shape:
        count *= extent
    return array("f" if dtype is Dtype.FLOAT32 else "d", [value] * count).tobytes()
