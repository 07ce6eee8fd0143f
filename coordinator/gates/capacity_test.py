"""Advertised is the minimum over ranks, allocated is the formula, and whoever does not fit waits.

Requests beyond the capacity are deferred, refused at once where they could never fit, and the one
after the pressure is served as if nothing had been.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from coordinator import model_setup, scheduler
from coordinator.composer import compose
from coordinator.gates.compare import demand_same
from coordinator.gates.live import (
    Live,
    LiveOptions,
    Request,
    Worker,
    exact_memory,
    gate_model,
    live,
)
from coordinator.gates.probe import probe
from coordinator.model_setup import Machine, set_up
from coordinator.request import Outcome, RequestEvent
from errors import ConfigError, PeerError, RequestError
from manifest.run_manifest import from_flags
from program.capacity import Capacity, CapacityInput, plan_capacity
from program.spec import ProgramSpec
from simulation import mutant_worker
from testdata.golden.seeded_checkpoint import tokens
from tools.python.tiers import mostly_exhaustive

SLOTS = 3
PAGES = 12
PAGE_TOKENS = 4
PRESSURE = 24


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gate_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Live]:
    with live(folder, LiveOptions(pages=PAGES)) as running:
        yield running


def capacity_of(folder: Path, program: str, ranks: int, memory: str = "") -> Capacity:
    flags = {"program": program, "ranks": str(ranks), "model.checkpoint": str(folder)}
    flags |= {"model.max_batch": "3", "model.max_step_tokens": "8", "model.page_tokens": "4"}
    if memory:
        flags["model.rank_memory_bytes"] = memory
    return set_up(from_flags(flags), lambda: Machine(2 << 30, frozenset({0, 1}))).capacity


@pytest.mark.parametrize(
    ("program", "smallest"),
    mostly_exhaustive(
        product(["qwen35/sharded", "qwen35/replicated"], [0, 1]),
        lambda case: case in (("qwen35/sharded", 0), ("qwen35/replicated", 1)),
    ),
)
def test_ranks_of_different_size(folder: Path, program: str, smallest: int) -> None:
    """Advertised is what the smallest rank holds, whichever it is; every rank allocates that."""
    ample = capacity_of(folder, program, 2)
    memory = [exact_memory(budget, SLOTS, 5 * PAGES) for budget in ample.ranks]
    memory[smallest] = exact_memory(ample.ranks[smallest], SLOTS, PAGES)
    flags = {"model.rank_memory_bytes": ",".join(map(str, memory))}
    with live(folder, LiveOptions(program=program, flags=flags)) as service:
        demand_minimum(service)
        probe(service)


def demand_minimum(service: Live) -> None:
    limits = service.setup.capacity.limits
    assert (limits.slots, limits.pages) == (SLOTS, PAGES)
    for rank in service.engine.snapshot.ranks:
        budget = service.setup.capacity.ranks[rank.rank]
        formula = SLOTS * budget.slot_bytes + PAGES * budget.page_bytes
        assert rank.load["state_bytes"] == formula


def test_the_first_rank_s_capacity_for_all_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate above, with a plan that asks rank 0 alone."""

    def of_rank_0(spec: ProgramSpec, given: CapacityInput) -> Capacity:
        capacity = plan_capacity(spec, given)
        pages = capacity.ranks[0].pages
        return replace(capacity, limits=replace(capacity.limits, pages=pages))

    memory = [
        exact_memory(budget, SLOTS, pages)
        for budget, pages in zip(
            capacity_of(folder, "qwen35/sharded", 2).ranks, (5 * PAGES, PAGES), strict=True
        )
    ]
    monkeypatch.setattr(model_setup, "plan_capacity", of_rank_0)
    flags = {"model.rank_memory_bytes": ",".join(map(str, memory))}
    with live(folder, LiveOptions(flags=flags)) as service, pytest.raises(AssertionError):
        demand_minimum(service)


def test_sharded_state_is_half(folder: Path) -> None:
    """Of the linear state every rank holds all when replicated, and its part when sharded."""
    replicated = capacity_of(folder, "qwen35/replicated", 2).ranks
    sharded = capacity_of(folder, "qwen35/sharded", 2).ranks
    assert [rank.slot_bytes for rank in sharded] == [rank.slot_bytes // 2 for rank in replicated]


def test_a_rank_that_holds_more_is_refused(folder: Path) -> None:
    """An accidental replica."""
    worker = Worker(mutant_worker.__name__, ("--mutation", "holds_twice"))
    with pytest.raises(PeerError) as failure, live(folder, LiveOptions(worker=worker)):
        pass
    assert (failure.value.code, failure.value.rank) == ("contract.allocation", 0)


def test_too_little_memory_starts_nothing(folder: Path) -> None:
    ample = capacity_of(folder, "qwen35/sharded", 2)
    memory = [exact_memory(budget, 1, 1) for budget in ample.ranks]
    memory[1] -= 1
    with pytest.raises(ConfigError) as refused:
        capacity_of(folder, "qwen35/sharded", 2, ",".join(map(str, memory)))
    assert refused.value.code == "config.capacity"
    assert refused.value.problems[0].field == "rank_memory_bytes[1]"


def test_pressure_defers_and_everyone_finishes(service: Live) -> None:
    """Many times what the slots and the pages hold; nobody is lost, nobody overtakes."""
    expected = probe(service)
    prompts = [
        [int(token) for token in tokens(17, f"pressure {index}", 1 + index % 13, 96)]
        for index in range(PRESSURE)
    ]
    counts = [3 + index % 5 for index in range(PRESSURE)]
    alone = [service.alone(p, count, logprobs=2) for p, count in zip(prompts, counts, strict=True)]
    requests = [
        service.submit(p, count, logprobs=2) for p, count in zip(prompts, counts, strict=True)
    ]
    demand_fair(service, requests)
    for request, other in zip(requests, alone, strict=True):
        demand_same(request.tokens, other.tokens)
    assert probe(service) == expected


def demand_fair(service: Live, requests: Sequence[Request]) -> None:
    """All of them end as they should, and none entered before one that came earlier."""
    first = len(service.steps)
    service.finish()
    service.demand_idle()
    plans = [step.plan for step in service.steps[first:]]
    entered = [admit.request_id for plan in plans for admit in plan.admissions]
    assert entered == [request.request_id for request in requests]
    assert all(request.end.outcome is Outcome.LENGTH for request in requests)


def test_overtaking_is_noticed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate above, with a composer that lets small requests pass a head that does not fit."""

    def smallest_first(table: Any, leaving: Any, waiting: Any, running: Any, budget: int) -> Any:
        order = sorted(waiting, key=lambda request: request.submission.tokens_max)
        return compose(table, leaving, order, running, budget)

    monkeypatch.setattr(scheduler, "compose", smallest_first)
    with live(folder, LiveOptions(ranks=1, pages=PAGES)) as service:
        requests = [service.submit([1, 2], count) for count in (30, 20, 3, 2)]
        with pytest.raises(AssertionError):
            demand_fair(service, requests)


def test_pages_can_be_the_limit(service: Live) -> None:
    """Slots are free, pages are not: the head of the queue waits, and so do those behind it."""
    tokens_of_two_thirds = PAGES * PAGE_TOKENS * 2 // 3
    large = [service.submit([1, 2], tokens_of_two_thirds - 1) for _ in range(2)]
    small = service.submit([3], 2)
    service.turns(1)
    snapshot = service.engine.snapshot.scheduler
    assert snapshot.waiting == (large[1].request_id, small.request_id)
    assert service.table.free_pages >= 1
    service.finish()
    for request in (*large, small):
        assert request.end.outcome is Outcome.LENGTH
    service.demand_idle()


def test_exactly_fits_and_one_page_too_many(service: Live) -> None:
    whole = PAGES * PAGE_TOKENS
    fits = service.submit([1, 2, 3], whole - 2)
    impossible = service.submit([1, 2, 3], whole - 1)
    service.turns(1)
    assert impossible.end.outcome is Outcome.REJECTED
    assert isinstance(impossible.end.error, RequestError)
    assert impossible.end.error.code == "request.capacity"
    service.finish()
    assert fits.end.outcome is Outcome.LENGTH
    assert (
        max(sum(len(r.pages) for r in [a]) for s in service.steps for a in s.plan.admissions)
        == PAGES
    )
    service.demand_idle()


def test_a_full_queue(folder: Path) -> None:
    options = replace(LiveOptions(ranks=1, pages=PAGES), waiting_max=2)
    with live(folder, options) as service:
        holders = [service.submit([1], 20), service.submit([2], 20)]
        service.turns(1)
        waiting = [service.submit([3], 20), service.submit([4], 20)]
        service.turns(1)
        refused = service.submit([5], 2)
        service.turns(1)
        assert refused.end.outcome is Outcome.REJECTED
        assert refused.end.error is not None
        assert refused.end.error.code == "overload.queue"
        service.end(waiting[0], RequestEvent.CANCEL)
        service.turns(1)
        late = service.submit([6], 2)
        service.finish()
        outcomes = [request.end.outcome for request in (*holders, waiting[1], late)]
        assert outcomes == [Outcome.LENGTH] * 4
        service.demand_idle()


def test_prefix_reuse_is_refused_with_the_reason(service: Live) -> None:
    steps = len(service.steps)
    with pytest.raises(RequestError) as refused:
        service.submit([1, 2, 3], 4, prefix_reuse=True)
    assert (refused.value.code, refused.value.param) == ("request.unsupported", "prefix_reuse")
    assert "recurrent" in refused.value.message
    service.alone([1, 2, 3], 4, prefix_reuse=False)
    assert len(service.steps) > steps


def test_one_prompt_after_the_other(service: Live) -> None:
    """A, B, A, A: nothing of an equal prompt is used again, and nothing of another."""
    first, other = [9, 8, 7, 6, 5, 4, 3], [9, 8, 7, 6, 50, 51]
    answers = [service.alone(prompt, 4, logprobs=2) for prompt in (first, other, first, first)]
    assert answers[0].token_ids == answers[2].token_ids == answers[3].token_ids
    assert answers[0].tokens[0].logprob == answers[2].tokens[0].logprob
