"""Requests together give what each gives alone: any number, any order of arrival, any budget.

Both programs on one and two ranks. Shown to fail on workers whose requests reach into each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.gates.compare import demand_same
from coordinator.gates.live import Live, LiveOptions, Request, Worker, gate_model, live
from coordinator.request import Outcome
from errors import PeerError
from simulation import mutant_worker
from testdata.golden.seeded_checkpoint import tokens
from tools.python.tiers import mostly_exhaustive

# One sharded rank has all budgets below.
LAYOUTS = [("qwen35/sharded", 2), ("qwen35/replicated", 1), ("qwen35/replicated", 2)]
COUNTS = [1, 2, 3, 4, 6, 8]
# Every one: 1 is each prompt token by token, 19 the longest prompt in one piece.
BUDGETS = range(1, 20)
NEW_TOKENS = 10
LENGTHS = [3, 19, 1, 8, 4, 12, 5, 16]
PROMPTS = [
    [int(token) for token in tokens(7, f"together {index}", length, 96)]
    for index, length in enumerate(LENGTHS)
]
Answers = list[Request]


def options_of(program: str, ranks: int) -> LiveOptions:
    """A budget that cuts most prompts, and room for all."""
    flags = {"model.max_batch": "8", "model.max_step_tokens": "19"}
    return LiveOptions(program=program, ranks=ranks, flags=flags, pages=60, step_tokens=9)


def together(service: Live, order: Sequence[int], gap_turns: int = 0) -> dict[int, Request]:
    """All of `order`, by their number; `gap_turns` steps between two arrivals."""
    found = {}
    for index in order:
        found[index] = service.submit(PROMPTS[index], NEW_TOKENS, logprobs=3)
        service.turns(gap_turns)
    service.finish()
    service.demand_idle()
    return found


def demand_answers(found: dict[int, Request], alone: Answers) -> None:
    compared = 0
    for index, request in found.items():
        assert request.end.outcome is Outcome.LENGTH
        compared += demand_same(request.tokens, alone[index].tokens)
    assert compared >= 4 * len(found), "too few tokens are far enough from a tie"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gate_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(
    scope="module",
    params=mostly_exhaustive(LAYOUTS, lambda layout: layout == ("qwen35/sharded", 2), unpack=False),
    ids=lambda layout: f"{layout[0]}-{layout[1]}",
)
def service(request: pytest.FixtureRequest, folder: Path) -> Iterator[Live]:
    with live(folder, options_of(*request.param)) as running:
        yield running


@pytest.fixture(scope="module")
def alone(service: Live) -> Answers:
    return [service.alone(prompt, NEW_TOKENS, logprobs=3) for prompt in PROMPTS]


@pytest.mark.parametrize("count", mostly_exhaustive(COUNTS, lambda count: count in (1, 3, 8)))
def test_together_as_alone(service: Live, alone: Answers, count: int) -> None:
    demand_answers(together(service, range(count)), alone)
    assert max(len(step.plan.rows) for step in service.steps) >= count


def test_any_order_of_arrival(service: Live, alone: Answers) -> None:
    for order in ([1, 0, 2], [2, 1, 0], [1, 2, 0], range(7, -1, -1)):
        demand_answers(together(service, order), alone)


def test_arrivals_between_steps(service: Live, alone: Answers) -> None:
    demand_answers(together(service, [1, 0, 5, 2, 7, 3], gap_turns=2), alone)


@pytest.fixture(scope="module")
def reference(folder: Path) -> Answers:
    with live(folder, options_of("qwen35/sharded", 1)) as running:
        return [running.alone(prompt, NEW_TOKENS, logprobs=3) for prompt in PROMPTS]


@pytest.mark.parametrize("budget", mostly_exhaustive(BUDGETS, lambda budget: budget in (1, 7, 19)))
def test_any_budget(folder: Path, reference: Answers, budget: int) -> None:
    options = replace(options_of("qwen35/sharded", 1), step_tokens=budget)
    with live(folder, options) as running:
        demand_answers(together(running, range(4)), reference)
        assert max(step.plan.token_count for step in running.steps) <= budget


@pytest.mark.parametrize(
    "mutation",
    mostly_exhaustive(
        ["shared_page", "chunk_forgets_conv", "move_leaves_conv"],
        lambda mutation: mutation == "move_leaves_conv",
    ),
)
def test_requests_that_reach_into_each_other_are_noticed(
    folder: Path, reference: Answers, mutation: str
) -> None:
    worker = Worker(mutant_worker.__name__, ("--mutation", mutation))
    options = replace(options_of("qwen35/sharded", 1), worker=worker)
    with live(folder, options) as running, pytest.raises((AssertionError, PeerError)):
        demand_answers(together(running, range(8), gap_turns=1), reference)
