"""A worker with one mistake in how it keeps its requests' state; only tests may start it.

    mutant_worker --connect ADDRESS --rank R --mutation NAME

Each mistake is one that a real engine has had (a slot that is not cleared, a chunk that forgets
what came before it); a gate that does not notice it is worth nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from types import ModuleType
from typing import Final

from model import qwen35, sampling, uniforms
from model.qwen35 import Qwen35Executor
from model.state import PageTable, RankState
from program.artifacts import SampledToken
from program.plan import Sample, Sampling, StepPlan
from program.spec import ProgramSpec
from worker.main import main as worker_main

_begin = Qwen35Executor.begin


def _plant(owner: type | ModuleType, **methods: Callable[..., object]) -> None:
    for name, method in methods.items():
        setattr(owner, name, method)


def _keep(state: RankState, slot: int, pages: Sequence[int]) -> None:
    """A release that clears nothing."""


def stale_recurrent(rank: int) -> None:
    """A new request finds the recurrent state of whoever had its slot."""

    def admit(state: RankState, slot: int) -> None:
        state.conv[:, slot] = 0

    _plant(RankState, admit=admit, release=_keep)


def stale_conv(rank: int) -> None:
    """A new request finds the last inputs of the convolution of whoever had its slot."""

    def admit(state: RankState, slot: int) -> None:
        state.recurrent[:, slot] = 0

    _plant(RankState, admit=admit, release=_keep)


def stale_on_rank_1(rank: int) -> None:
    """One rank alone keeps what it should clear."""
    if rank == 1:
        stale_recurrent(rank)


def move_leaves_conv(rank: int) -> None:
    """A request that moves takes its recurrent state along and leaves its convolution state."""

    def move(state: RankState, from_slot: int, to_slot: int) -> None:
        state.recurrent[:, to_slot] = state.recurrent[:, from_slot]

    _plant(RankState, move=move)


def chunk_forgets_conv(rank: int) -> None:
    """A chunk that continues a prompt starts with an empty convolution state."""

    def begin(executor: Qwen35Executor, plan: StepPlan) -> tuple[int, int]:
        for row in plan.rows:
            if row.start_position > 0 and len(row.token_ids) > 1:
                executor.state.conv[:, row.slot] = 0
        return _begin(executor, plan)

    _plant(Qwen35Executor, begin=begin)


def forgets_after_a_while(rank: int) -> None:
    """As chunk_forgets_conv, but only from the twentieth admission on."""

    def begin(executor: Qwen35Executor, plan: StepPlan) -> tuple[int, int]:
        for row in plan.rows if executor.table.admissions >= 20 else ():
            if row.start_position > 0 and len(row.token_ids) > 1:
                executor.state.conv[:, row.slot] = 0
        return _begin(executor, plan)

    _plant(Qwen35Executor, begin=begin)


def shared_page(rank: int) -> None:
    """Every request's first page is page 0."""
    made = PageTable.__init__

    def init(table: PageTable, pages: Sequence[int], page_tokens: int) -> None:
        made(table, (0, *pages[1:]), page_tokens)

    _plant(PageTable, __init__=init)


def holds_twice(rank: int) -> None:
    """Twice the state that was agreed, as if it were not sharded."""
    made = RankState.__init__

    def init(
        state: RankState, program: ProgramSpec, slots: int, pages: int, size: int, *, poison: bool
    ) -> None:
        made(state, program, 2 * slots, 2 * pages, size, poison=poison)

    _plant(RankState, __init__=init)


def uniform_by_step(rank: int) -> None:
    """Random numbers are drawn one after the other, whoever needs them."""
    drawn = count()

    def uniform(seed: int, position: int) -> float:
        return uniforms.uniform(seed, next(drawn))

    _plant(sampling, uniform=uniform)


def logprobs_change_token(rank: int) -> None:
    """Whoever asks for log-probabilities gets another token."""
    sample = sampling.sample

    def other(
        request_id: int,
        logits: sampling.Logits,
        parameters: Sampling,
        history: sampling.TokenHistory,
        wanted: Sample,
    ) -> SampledToken:
        token = sample(request_id, logits, parameters, history, wanted)
        shift = 0 if wanted.logprobs is None else 1
        return replace(token, token_id=(token.token_id + shift) % len(logits))

    _plant(qwen35, sample=other)


MUTATIONS: Final[dict[str, Callable[[int], None]]] = {
    mutation.__name__: mutation
    for mutation in (
        stale_recurrent,
        stale_conv,
        stale_on_rank_1,
        move_leaves_conv,
        chunk_forgets_conv,
        forgets_after_a_while,
        shared_page,
        holds_twice,
        uniform_by_step,
        logprobs_change_token,
    )
}


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="mutant_worker", allow_abbrev=False)
    parser.add_argument("--mutation", required=True, choices=list(MUTATIONS))
    parser.add_argument("--rank", required=True, type=int)
    own, rest = parser.parse_known_args(argv)
    MUTATIONS[own.mutation](own.rank)
    return worker_main(["--rank", str(own.rank), *rest])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
