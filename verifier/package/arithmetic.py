"""What a run of the block must compute: its partials, totals and result, from the seed alone.

The ranks' maths is the model's own (the independent verifier has another); the sums over ranks are
done here in plain numbers.
"""

from __future__ import annotations

import operator
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from evidence.matrix import Case
from model.binding import open_program
from program.block import (
    PROGRAM_NAME,
    block_spec,
    input_payload,
    operand_shape,
    weight_payload,
)


@dataclass(frozen=True)
class Computed:
    """partials[stage][rank], and the result that every rank must return; `<f4` in C order."""

    partials: tuple[tuple[bytes, ...], ...]
    result: bytes


def computed(case: Case) -> Computed:
    """The numbers of a case's run when nothing goes wrong."""
    return _computed(case.seed, case.ranks, case.batch, case.sequence, case.sum_order)


@lru_cache(maxsize=256)
def _computed(seed: int, ranks: int, batch: int, sequence: int, sum_order: str) -> Computed:
    spec = block_spec(ranks)
    executors = [open_program(PROGRAM_NAME, {}, rank, ranks).executor for rank in range(ranks)]
    operand = (operand_shape(batch, sequence), input_payload(seed, batch, sequence))
    for rank, executor in enumerate(executors):
        for weight in spec.weights:
            executor.load_tensor(weight.name, weight_payload(seed, weight, rank, ranks))
        executor.begin(operand)
    partials = []
    for stage in range(len(spec.stages)):
        of_ranks = tuple(bytes(executor.partial(stage)) for executor in executors)
        partials.append(of_ranks)
        total = reduce_partials(of_ranks, sum_order)
        for executor in executors:
            executor.reduced(stage, total)
    results = {bytes(executor.finish().payload) for executor in executors}
    return Computed(tuple(partials), results.pop())


def reduce_partials(partials: Sequence[bytes], sum_order: str) -> bytes:
    """The sum over ranks in binary32 (docs/spec/program.md B6); partials of equal length.

    A sum of two binary32 numbers in binary64, rounded to binary32, is the correctly rounded one:
    53 digits are at least 2 x 24 + 2.
    """
    level = [_floats(partial) for partial in partials]
    while len(level) > 1:
        if sum_order == "rank":
            level = [_add(level[0], level[1]), *level[2:]]
        else:
            level = [_add(level[i], level[i + 1]) for i in range(0, len(level), 2)]
    return _bytes(level[0])


def _add(left: array[float], right: array[float]) -> array[float]:
    return array("f", map(operator.add, left, right))


def _floats(data: bytes) -> array[float]:
    values = array("f", data)
    if sys.byteorder == "big":
        values.byteswap()
    return values


def _bytes(values: array[float]) -> bytes:
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()
