"""The frames of a block run as session.md S6 orders them and metadata.md predicts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import block
import canonical
from ledger import Step
from matrix import FAULT_KINDS, Case

_ELEMENT_BYTES = 4
Connections = Mapping[int, Sequence[Step]]


class _Writer:
    """Collects the steps of one run; counts sequences per rank and direction."""

    def __init__(self, epoch: int) -> None:
        self.steps: list[Step] = []
        self._epoch = epoch
        self._sequences: dict[tuple[int, str], int] = {}

    def add(
        self,
        direction: str,
        rank: int,
        kind: str,
        phase: str,
        metadata: Mapping[str, Any],
        shape: Sequence[int] | None = None,
    ) -> None:
        sequence = self._sequences.get((rank, direction), 0)
        self._sequences[rank, direction] = sequence + 1
        self.steps.append(
            Step(
                direction,
                rank,
                kind,
                phase,
                0 if kind == "HELLO" else self._epoch,
                sequence,
                canonical.encode({"rank": rank, **metadata}),
                0 if shape is None else _ELEMENT_BYTES * prod(shape),
            )
        )

    def tensor(
        self, direction: str, rank: int, kind: str, phase: str, named: str, shape: Sequence[int]
    ) -> None:
        """Adds a tensor frame; the `phase` of its metadata is that of its kind, see metadata.md."""
        fixed = {"WEIGHT": "load", "INPUT": "input", "RESULT": "result"}
        metadata: dict[str, Any] = {
            "dtype": "<f4",
            "phase": fixed.get(kind, phase),
            "shape": list(shape),
            "tensor": named,
        }
        if kind == "RESULT":
            metadata |= {"report": None, "step": 0}
        self.add(direction, rank, kind, phase, metadata, shape)


@lru_cache(maxsize=64)
def clean_steps(ranks: int, batch: int, sequence: int, epoch: int) -> tuple[Step, ...]:
    """Every frame of a clean run in the order of the ledger."""
    writer = _Writer(epoch)
    world = range(ranks)
    tokens = (batch, sequence, block.HIDDEN)
    hello = {"byte_order": "little", "dtype": "<f4"}
    for rank in world:
        writer.add("receive", rank, "HELLO", "hello", hello)
    for rank in world:
        writer.add("send", rank, "ACK", "hello", _agreement(ranks))
    for rank in world:
        for name, shape in block.local_shapes(ranks):
            writer.tensor("send", rank, "WEIGHT", "load", name, shape)
    for rank in world:
        writer.tensor("send", rank, "INPUT", "load", "x", tokens)
        writer.add("send", rank, "COMMAND", "load", _command(block.PHASES[0]))
    for number, phase in enumerate(block.PHASES, 1):
        _stage(writer, world, phase, block.PHASES[number : number + 1], tokens)
    for rank in world:
        writer.tensor("receive", rank, "RESULT", "result", "y", tokens)
    return tuple(writer.steps)


def _stage(
    writer: _Writer, world: range, phase: str, following: Sequence[str], tokens: Sequence[int]
) -> None:
    """One stage from its partials to its reductions, and the COMMAND of the next, if any."""
    for rank in world:
        writer.tensor("receive", rank, "PARTIAL", phase, f"{phase}.partial", tokens)
        fence = {"phase": phase, "report": None, "tensors": 1}
        writer.add("receive", rank, "FENCE", phase, fence)
    for rank in world:
        writer.tensor("send", rank, "REDUCTION", phase, f"{phase}.total", tokens)
        for each in following:
            writer.add("send", rank, "COMMAND", phase, _command(each))


def _command(phase: str) -> dict[str, Any]:
    return {"phase": phase, "plan": None, "step": 0}


def _agreement(ranks: int) -> dict[str, Any]:
    return {
        "parameters": {},
        "program": block.NAME,
        "program_digest": block.digest(ranks),
        "world_size": ranks,
    }


def expected_steps(case: Case, epoch: int) -> tuple[Step, ...]:
    """The frames of a case in order; of a fault case up to where the fault is detected."""
    steps = clean_steps(case.ranks, case.batch, case.sequence, epoch)
    return steps if case.fault is None else steps[: _fault_at(steps, case) + 1]


def _fault_at(steps: Sequence[Step], case: Case) -> int:
    """Index of F or L of evidence.md's fault table: the first or last frame owed in the phase."""
    if case.fault is None:
        raise ValueError(f"{case.name} has no fault")
    owed = [
        index
        for index, step in enumerate(steps)
        if step.direction == "receive"
        and step.rank == case.fault.rank
        and step.phase == case.fault.phase
    ]
    return owed[-1 if FAULT_KINDS[case.fault.kind].at_last_frame else 0]


def connections(steps: Sequence[Step]) -> dict[int, list[Step]]:
    """The steps of each rank's connection in order."""
    by_rank: dict[int, list[Step]] = {}
    for step in steps:
        by_rank.setdefault(step.rank, []).append(step)
    return by_rank
