"""All ranks of the block in one process, stepped in lock-step: the harness of model tests."""

from __future__ import annotations

import hashlib

import numpy as np

from errors import MisuseError
from model.block import BlockExecutor
from model.exact import F32, rotary_table
from program.block import (
    SEQUENCE_MAX,
    WORLD_SIZES,
    block_spec,
    input_payload,
    operand_shape,
    weight_payload,
)
from program.spec import ProgramSpec


def operand(seed: int, batch: int, sequence: int) -> F32:
    """The seeded input, [batch, sequence, hidden]."""
    flat = np.frombuffer(input_payload(seed, batch, sequence), "<f4")
    return flat.reshape(operand_shape(batch, sequence))


def shards(spec: ProgramSpec, seed: int, rank: int) -> dict[str, F32]:
    """The rank's slices of the seeded weights, by name."""
    return {
        weight.name: np.frombuffer(
            weight_payload(seed, weight, rank, spec.world_size), "<f4"
        ).reshape(weight.local_shape(rank, spec.world_size))
        for weight in spec.weights
    }


def executors(world_size: int, seed: int) -> list[BlockExecutor]:
    """One loaded executor per rank."""
    spec = block_spec(world_size)
    group = [BlockExecutor(spec, rank) for rank in range(world_size)]
    for rank, executor in enumerate(group):
        executor.load(shards(spec, seed, rank))
    return group


def step(group: list[BlockExecutor], x: F32, order: str = "pairwise") -> bytes:
    """One block step; the output's bytes, which must be the same on every rank.

    order: `pairwise` or `rank`, as the coordinator sums.
    """
    for executor in group:
        executor.begin(x)
    for stage in (0, 1):
        partials = [executor.partial(stage) for executor in group]
        total = _pairwise(partials) if order == "pairwise" else _in_rank_order(partials)
        for executor in group:
            executor.reduced(stage, total)
    outputs = {executor.finish().tobytes() for executor in group}
    if len(outputs) != 1:
        raise MisuseError("the ranks' outputs differ")
    return outputs.pop()


def digest_of_many() -> str:
    """SHA-256 of outputs of several shapes at every world size, and of the rotary table."""
    digest = hashlib.sha256()
    for batch, sequence in ((1, 1), (1, 4), (2, 7), (3, 33)):
        for world_size in WORLD_SIZES:
            digest.update(step(executors(world_size, 11), operand(11, batch, sequence)))
    for table in rotary_table(SEQUENCE_MAX):
        digest.update(table.tobytes())
    return digest.hexdigest()


def _pairwise(partials: list[F32]) -> F32:
    while len(partials) > 1:
        partials = [a + b for a, b in zip(partials[0::2], partials[1::2], strict=True)]
    return partials[0]


def _in_rank_order(partials: list[F32]) -> F32:
    total = partials[0]
    for partial in partials[1:]:
        total = total + partial
    return total
