"""What both sides of a conversation agree on before it starts: the program.

A program is a list of stages, each ending in one collective (a sum of the ranks' partials, done by
the coordinator). The spec says which tensors exist, how they are cut, in which order they travel
and what every frame's metadata will be; the receiver of a frame demands what the spec predicts. It
must not know arrays, sockets or time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from errors import MisuseError
from program.partition import ShardRule, local_shape

LOAD_PHASE = "load"
INPUT_PHASE = "input"
PLAN_PHASE = "plan"
RESULT_PHASE = "result"


class Loading(Enum):
    """Where the weights come from: frames on the wire, or a checkpoint each rank reads itself."""

    WIRE = "wire"
    LOCAL = "local"


class Dtype(Enum):
    """Element types that travel, in NumPy's spelling; always little-endian."""

    FLOAT32 = "<f4"
    FLOAT64 = "<f8"

    @property
    def item_bytes(self) -> int:
        return 4 if self is Dtype.FLOAT32 else 8


@dataclass(frozen=True)
class WeightSpec:
    """One weight: its name, its full shape and the rule that cuts it over ranks."""

    name: str
    shape: tuple[int, ...]
    rule: ShardRule

    def local_shape(self, rank: int, world_size: int) -> tuple[int, ...]:
        return local_shape(self.rule, self.shape, rank, world_size)


@dataclass(frozen=True)
class Stage:
    """One phase of a step. Its partial and its reduction have the operand's token rows x hidden."""

    phase: str


class StateScope(Enum):
    """What one copy of a state belongs to: a request's slot, or one token position of a page."""

    SLOT = "slot"
    TOKEN = "token"


@dataclass(frozen=True)
class StateSpec:
    """One kind of state a rank keeps: its name, local shape and bytes per element.

    scope SLOT: recurrent and convolution state, once per slot. scope TOKEN: keys and values, once
    per token position of the KV cache. All layers together: a leading axis counts them.
    """

    name: str
    local_shape: tuple[int, ...]
    item_bytes: int
    scope: StateScope = StateScope.SLOT

    @property
    def local_bytes(self) -> int:
        total = self.item_bytes
        for extent in self.local_shape:
            total *= extent
        return total


@dataclass(frozen=True)
class ProgramSpec:
    """A program at one world size.

    folded: the fence rides in the partial and the next command in the reduction
    (docs/spec/session.md); false for the block, whose frames are fixed at 6 and 13.
    partial_dtype: element type of partials and reductions.
    arithmetic: name of the clauses that fix every rounding (docs/spec/program.md), or "native"
    where results are compared within a tolerance.
    planned: each step has a plan, which every rank accepts before any of them changes its state.
    constants: values of the formulas that no shape shows, by name, spelled exactly.
    """

    name: str
    world_size: int
    hidden_size: int
    weights: tuple[WeightSpec, ...]
    stages: tuple[Stage, ...]
    loading: Loading
    artifact_ranks: tuple[int, ...]
    state: tuple[StateSpec, ...] = ()
    partial_dtype: Dtype = Dtype.FLOAT32
    folded: bool = False
    arithmetic: str = "native"
    planned: bool = False
    constants: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        # The session takes a plan in IDLE, and only a LOAD leads there before the first step.
        if self.planned and self.loading is not Loading.LOCAL:
            raise MisuseError(f"program {self.name} has plans, so it loads from a checkpoint")

    @property
    def phases(self) -> tuple[str, ...]:
        return tuple(stage.phase for stage in self.stages)
