"""A session agrees on everything or ends: over the real worker and the real maths, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from coordinator.model_cases import MACHINE, SMALL, model_run, small_model
from coordinator.model_session import ModelSession
from coordinator.model_setup import set_up
from errors import ContractError, MisuseError, PoisonedError
from program.artifacts import SampledToken, ScoredPosition
from program.plan import Admit, Release, Row, Sample, Sampling, Score, StepPlan
from simulation.simulated_session import Spoil, simulated_session

ENTER = Admit(0, 7, 1, (0,), 3, 8, Sampling())
FIRST = StepPlan(0, admissions=(ENTER,), rows=(Row(7, 0, 0, (1, 2, 3), Sample(logprobs=2)),))
LEAVE = StepPlan(1, releases=(Release(0, 7, 1),))
OTHER = "0123456789abcdef" * 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("model") / "model")


def opened(
    folder: Path, spoiled: Mapping[int, Spoil] | None = None, **fields: object
) -> ModelSession:
    manifest = model_run(folder, **fields)
    setup = set_up(manifest, lambda: MACHINE, positions_max=64)
    return simulated_session(setup, manifest, spoiled)[0]


def loaded(
    folder: Path, spoiled: Mapping[int, Spoil] | None = None, **fields: object
) -> ModelSession:
    session = opened(folder, spoiled, **fields)
    session.load()
    return session


def reporting(**changes: object) -> Spoil:
    """A rank whose RESULT says something else."""

    def spoil(executor: Any) -> None:
        finish = executor.finish

        def other() -> object:
            artifact: Any = finish()
            return replace(artifact, report={**artifact.report, **changes})

        executor.finish = other

    return spoil


def loading(**changes: int) -> Spoil:
    """A rank whose load report says something else."""

    def spoil(executor: Any) -> None:
        load = executor.load_local
        executor.load_local = lambda parameters: {**load(parameters), **changes}

    return spoil


def refused(session: ModelSession, plan: StepPlan) -> ContractError:
    with pytest.raises(ContractError) as refusal:
        session.step(plan)
    assert session.table.next_step == plan.step
    with pytest.raises(PoisonedError):
        session.step(plan)
    return refusal.value


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("program", ["qwen35/sharded", "qwen35/replicated"])
def test_a_step_returns_what_the_primary_sampled(folder: Path, program: str, ranks: int) -> None:
    session = loaded(folder, program=program, ranks=ranks)
    (sampled,) = session.step(FIRST).artifacts
    assert isinstance(sampled, SampledToken)
    assert (sampled.request_id, sampled.position, len(sampled.top)) == (7, 3, 2)
    assert sampled.token_id == sampled.top[0].token_id
    assert session.step(LEAVE).artifacts == ()
    assert not session.table.residents
    assert len(session.last_reports) == ranks


def test_a_step_returns_scores_in_order(folder: Path) -> None:
    session = loaded(folder)
    row = Row(7, 0, 0, (5, 6, 7, 8), Score(last=3, top=96))
    admit = replace(ENTER, prompt_tokens=4, sampling=None)
    scored = session.step(StepPlan(0, admissions=(admit,), rows=(row,))).artifacts
    assert all(isinstance(one, ScoredPosition) for one in scored)
    assert [one.position for one in scored] == [1, 2, 3]


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("key", ["plan_digest", "state_digest", "hidden_digest"])
def test_a_rank_with_another_digest_ends_the_session(folder: Path, key: str, rank: int) -> None:
    refusal = refused(loaded(folder, {rank: reporting(**{key: OTHER})}), FIRST)
    # Which of two hidden states is wrong can't be told; the second is named.
    named = 1 if key == "hidden_digest" else rank
    assert (refusal.code, refusal.rank) == ("contract.ranks_disagree", named)
    assert refusal.phase == "result"


@pytest.mark.parametrize(
    ("changes", "rank"),
    [
        ({"hidden_digest": "x"}, 1),
        ({"extra": 1}, 0),
        ({"artifacts": []}, 0),
        ({"artifacts": [{"position": 3, "request_id": 8, "token_id": 1}]}, 0),
        ({"artifacts": [{"position": 3, "request_id": 7, "token_id": 96}]}, 0),
        ({"artifacts": [{"position": 3, "request_id": 7, "token_id": 1}]}, 1),
    ],
)
def test_a_report_that_is_not_the_agreed_one_is_refused(
    folder: Path, changes: dict[str, object], rank: int
) -> None:
    refusal = refused(loaded(folder, {rank: reporting(**changes)}), FIRST)
    assert (refusal.code, refusal.rank, refusal.phase) == ("contract.metadata", rank, "result")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("more", [1, -1, 10**9])
def test_a_rank_that_holds_other_state_than_agreed_is_refused(
    folder: Path, rank: int, more: int
) -> None:
    manifest = model_run(folder)
    agreed = set_up(manifest, lambda: MACHINE, positions_max=64).capacity.state_bytes(rank)
    session = opened(folder, {rank: loading(state_bytes=agreed + more)})
    with pytest.raises(ContractError) as refusal:
        session.load()
    assert (refusal.value.code, refusal.value.rank) == ("contract.allocation", rank)
    with pytest.raises(PoisonedError):
        session.step(FIRST)


def test_the_same_check_without_the_key(folder: Path) -> None:
    def spoil(executor: Any) -> None:
        executor.load_local = lambda parameters: {"tensors": 1}

    with pytest.raises(ContractError) as refusal:
        opened(folder, {1: spoil}).load()
    assert (refusal.value.code, refusal.value.rank) == ("contract.allocation", 1)


def test_every_rank_allocates_what_was_planned(folder: Path) -> None:
    for program in ("qwen35/sharded", "qwen35/replicated"):
        manifest = model_run(folder, program=program)
        setup = set_up(manifest, lambda: MACHINE, positions_max=64)
        session, _ = simulated_session(setup, manifest)
        session.load()
        found = [report["state_bytes"] for report in session.reports]
        assert found == [setup.capacity.state_bytes(rank) for rank in range(2)]
        limits = session.limits
        linear, full = SMALL.pattern.count("L"), SMALL.pattern.count("F")
        share = 2 if program == "qwen35/sharded" else 1
        recurrent = linear * SMALL.value_heads // share * SMALL.key_dim * SMALL.value_dim
        values = SMALL.value_heads * SMALL.value_dim
        channels = (2 * SMALL.key_heads * SMALL.key_dim + values) // share
        conv = linear * channels * (SMALL.kernel - 1)
        cached = 2 * full * SMALL.kv_heads // 2 * SMALL.head_dim
        tokens = limits.pages * limits.page_tokens
        assert found[0] == 4 * (limits.slots * (recurrent + conv) + tokens * cached)


def test_an_own_plan_that_cannot_be_is_our_mistake_and_harms_nothing(folder: Path) -> None:
    session = loaded(folder)
    with pytest.raises(MisuseError):
        session.step(LEAVE)
    assert session.step(FIRST).artifacts
