"""Sampling, stop tokens and log-probabilities in both halves of mixed steps.

A request's tokens depend on its prompt, parameters and seed alone: not on neighbours, on chunks,
on when it came, or on whether somebody asks for log-probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.gates.compare import LOGPROB_TOLERANCE, demand_same
from coordinator.gates.live import Live, LiveOptions, Request, Worker, gate_model, live
from coordinator.request import Outcome
from simulation import mutant_worker
from testdata.golden.seeded_checkpoint import tokens
from tools.python.tiers import mostly_exhaustive

LAYOUTS = [("qwen35/sharded", 2), ("qwen35/replicated", 1)]
NEW_TOKENS = 8
# Parameters by name; every rule of plan.md L24 is in one of them.
PARAMETERS: dict[str, dict[str, object]] = {
    "greedy": {},
    "temperature": {"temperature": 0.9, "seed": 1},
    "top_k": {"temperature": 1.5, "seed": 2, "top_k": 5},
    "top_p": {"temperature": 1.2, "seed": 3, "top_p": 0.7},
    "min_p": {"temperature": 1.2, "seed": 4, "min_p": 0.1},
    "penalties": {
        "temperature": 1.0,
        "seed": 2**64 - 1,
        "repetition_penalty": 1.3,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.25,
    },
    "logit_bias": {"logit_bias": {"7": 6.0, "8": 6.2, "95": -100.0}},
}
PROMPTS = {
    name: [int(token) for token in tokens(13, f"sampling {name}", 5 + 3 * index, 96)]
    for index, name in enumerate(PARAMETERS)
}
Found = dict[str, Request]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gate_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(
    scope="module",
    params=mostly_exhaustive(LAYOUTS, lambda layout: layout[1] == 2, unpack=False),
    ids=lambda layout: f"{layout[0]}-{layout[1]}",
)
def service(request: pytest.FixtureRequest, folder: Path) -> Iterator[Live]:
    program, ranks = request.param
    with live(folder, LiveOptions(program=program, ranks=ranks)) as running:
        yield running


def ask(service: Live, name: str, **others: object) -> Request:
    return service.submit(PROMPTS[name], NEW_TOKENS, **{**PARAMETERS[name], **others})


@pytest.fixture(scope="module")
def alone(service: Live) -> Found:
    found = {}
    for name in PARAMETERS:
        found[name] = ask(service, name, logprobs=2)
        service.finish()
    return found


def mixed(service: Live, **others: object) -> Found:
    """All at once, one arriving in each step: every one samples first beside decodes."""
    first = len(service.steps)
    found = {}
    for name in PARAMETERS:
        found[name] = ask(service, name, **others)
        service.turns(1)
    service.finish()
    service.demand_idle()
    starts = [[row.start_position for row in step.plan.rows] for step in service.steps[first:]]
    assert any(len(rows) > 1 for rows in starts)
    return found


def demand_equal(found: Found, expected: Found) -> None:
    for name, request in found.items():
        assert request.end.outcome is Outcome.LENGTH
        assert request.token_ids == expected[name].token_ids, name


def test_neighbours_and_chunks_change_nothing(service: Live, alone: Found) -> None:
    demand_equal(mixed(service), alone)


def test_sampling_differs_from_greedy(service: Live, alone: Found) -> None:
    """Otherwise the comparison above would be of greedy answers alone."""
    for name in PARAMETERS:
        greedy = service.alone(PROMPTS[name], NEW_TOKENS)
        assert (greedy.token_ids == alone[name].token_ids) == (name == "greedy")


@pytest.mark.parametrize("count", [0, 1, 20])
def test_asking_for_logprobs_changes_no_token(service: Live, alone: Found, count: int) -> None:
    found = mixed(service, logprobs=count)
    demand_equal(found, alone)
    for request in found.values():
        for token in request.tokens:
            assert token.logprob is not None
            assert len(token.top) == count
            falling = [entry.logprob for entry in token.top]
            assert falling == sorted(falling, reverse=True)
            known = {entry.token_id: entry.logprob for entry in token.top}
            assert known.get(token.token_id, token.logprob) == token.logprob


def test_logprobs_are_the_same_in_both_halves(service: Live, alone: Found) -> None:
    """Of the first token, which a prefill makes, and of those that decodes make."""
    for name, request in mixed(service, logprobs=2).items():
        for one, other in zip(request.tokens, alone[name].tokens, strict=True):
            assert one.logprob is not None
            assert other.logprob is not None
            assert abs(one.logprob - other.logprob) <= LOGPROB_TOLERANCE


def test_none_asked_none_given(service: Live) -> None:
    for request in mixed(service).values():
        assert {(token.logprob, token.top) for token in request.tokens} == {(None, ())}


@pytest.mark.parametrize("index", [0, 3])
def test_a_stop_token_ends_it(service: Live, alone: Found, index: int) -> None:
    """Index 0 is sampled by a prefill, 3 by a decode; both beside other rows. It is reported."""
    ids = alone["temperature"].token_ids
    stop = ids[index]
    expected = ids[: ids.index(stop) + 1]
    neighbour = ask(service, "penalties")
    service.turns(1)
    stopped = ask(service, "temperature", stop_token_ids=[stop])
    later = ask(service, "greedy")
    service.finish()
    assert stopped.end.outcome is Outcome.STOP
    assert stopped.token_ids == expected
    assert stopped.end.completion_tokens == len(expected)
    demand_equal({"penalties": neighbour, "greedy": later}, alone)
    service.demand_idle()


def test_the_seed_alone_decides(service: Live, alone: Found) -> None:
    again = ask(service, "temperature")
    other = service.submit(PROMPTS["temperature"], NEW_TOKENS, temperature=0.9, seed=77)
    service.finish()
    assert again.token_ids == alone["temperature"].token_ids
    assert other.token_ids != again.token_ids


def test_ranks_do_not_matter(folder: Path, alone: Found) -> None:
    """The same tokens on one rank, where the logits agree to rounding."""
    with live(folder, LiveOptions(ranks=1)) as service:
        found = mixed(service, logprobs=2)
    demand_equal(found, alone)
    demand_same(found["greedy"].tokens, alone["greedy"].tokens)


@pytest.mark.parametrize(
    "mutation",
    [pytest.param("uniform_by_step", marks=pytest.mark.exhaustive), "logprobs_change_token"],
)
def test_a_worker_that_samples_otherwise_is_noticed(folder: Path, mutation: str) -> None:
    worker = Worker(mutant_worker.__name__, ("--mutation", mutation))
    with live(folder, LiveOptions(ranks=1, worker=worker)) as service:
        expected = {}
        for name in PARAMETERS:
            expected[name] = ask(service, name)
            service.finish()
        with pytest.raises(AssertionError):
            demand_equal(mixed(service, logprobs=1), expected)
