"""Session.md S15: when a plan is not accepted by every rank, no rank has changed anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from errors import MisuseError, PeerError, PoisonedError
from model.bound_qwen35 import BoundQwen35
from program.plan import Admit, Move, Release, Row, StepPlan
from program.plan_codec import encode_plan, plan_digest
from program.qwen35 import Variant
from simulation.delivery import byte_by_byte
from simulation.faults import SEQUENCE_FIELD, Fault, FaultKind, take_apart
from simulation.model_ranks import WORLD_SIZE, ModelRanks, as_json, open_model
from testdata.golden.seeded_checkpoint import write_checkpoint
from testdata.golden.shapes import BASE
from wire.frame import Kind
from wire.ledger import read_ledger
from wire.limits import HEADER, MAGIC
from wire.metadata import Command
from wire.session import PLAN_PHASE

PARTIALS = {Variant.SHARDED: 8, Variant.REPLICATED: 5}
RANKS = range(WORLD_SIZE)
FIRST = StepPlan(
    step=0,
    admissions=(Admit(0, 10, 1, (0, 1), 8, 8, None), Admit(1, 11, 2, (2, 3), 8, 8, None)),
    rows=(Row(10, 0, 0, (1, 2, 3)), Row(11, 1, 0, (4, 5))),
)
# Whoever carries it out changes its table and every arena: all four transitions are in it.
SECOND = StepPlan(
    step=1,
    releases=(Release(0, 10, 1),),
    admissions=(Admit(2, 12, 3, (0, 4), 8, 8, None),),
    moves=(Move(1, 0, 11),),
    rows=(Row(11, 0, 2, (6,)), Row(12, 2, 0, (7, 8, 9))),
)
CODES = {
    FaultKind.RANK_EXIT: "protocol.closed",
    FaultKind.TRUNCATED_FRAME: "protocol.truncated",
    FaultKind.CHECKSUM_CORRUPTION: "protocol.checksum",
    FaultKind.STALE_EPOCH: "contract.epoch",
    FaultKind.DUPLICATE_SEQUENCE: "contract.sequence",
    FaultKind.METADATA_MISMATCH: "contract.metadata",
    FaultKind.DELAY: "deadline.receive",
    FaultKind.CANCELLATION_RACE: "deadline.receive",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("model")
    write_checkpoint(root, BASE, 1)
    return root


class Liar(BoundQwen35):
    """Accepts, and says another digest from its second plan on."""

    def __init__(self, true: BoundQwen35, digest: str) -> None:
        self.__dict__ = true.__dict__
        self._lie = digest

    def accept(self, plan: Mapping[str, object]) -> str:
        digest = super().accept(plan)
        return self._lie if plan["step"] else digest


class Eager(BoundQwen35):
    """A rank with the mistake that S15 excludes: it carries a plan out as soon as it has it."""

    def __init__(self, true: BoundQwen35) -> None:
        self.__dict__ = true.__dict__

    def accept(self, plan: Mapping[str, object]) -> str:
        digest = super().accept(plan)
        super().begin(None)
        return digest

    def begin(self, operand: object) -> tuple[int, ...]:
        return self._shape


def refuse_next(ranks: ModelRanks, rank: int) -> None:
    """Planted: this rank's table knows of one admission more, so the next one can't be right."""
    executor = ranks.executors[rank].executor
    executor.table = replace(executor.table, admissions=executor.table.admissions + 1)


def failed_step(ranks: ModelRanks, plan: StepPlan = SECOND) -> PeerError:
    with pytest.raises(PeerError) as caught:
        ranks.group.run_step(ranks.step_input(plan))
    with pytest.raises(PoisonedError):
        ranks.group.run_step(ranks.step_input(plan))
    return caught.value


@pytest.mark.parametrize("variant", Variant)
def test_an_agreed_plan_is_carried_out_by_all(folder: Path, variant: Variant) -> None:
    ranks = open_model(folder, variant)
    before = ranks.kept()
    for plan in (FIRST, SECOND):
        results = ranks.group.run_step(ranks.step_input(plan))
        after = ranks.kept()
        reports = [dict(result.report or {}) for result in results]
        assert all(report["plan_digest"] == plan_digest(plan) for report in reports)
        assert len({str(report["state_digest"]) for report in reports}) == 1
        for old, new in zip(before, after, strict=True):
            assert old.table != new.table
            assert all(a != b for a, b in zip(old.arenas, new.arenas, strict=True))
        before = after
    kinds = Counter(entry.kind for entry in read_ledger(ranks.recorder.ledger()))
    assert kinds["PARTIAL"] == kinds["REDUCTION"] == 2 * WORLD_SIZE * PARTIALS[variant]
    # The load's, and one for each plan.
    assert kinds["FENCE"] == WORLD_SIZE * (1 + 2)
    assert kinds["COMMAND"] == WORLD_SIZE * 2 * 2


@pytest.mark.parametrize("rank", RANKS)
def test_a_refusal_of_one_rank_changes_no_rank(folder: Path, rank: int) -> None:
    ranks = open_model(folder)
    ranks.group.run_step(ranks.step_input(FIRST))
    refuse_next(ranks, rank)
    before = ranks.kept()
    failure = failed_step(ranks)
    assert (failure.code, failure.rank, failure.phase) == ("protocol.closed", rank, PLAN_PHASE)
    refused = ranks.workers[rank].failure
    assert refused is not None
    assert refused.code == "contract.allocation"
    assert ranks.kept() == before


def test_a_rank_that_does_not_wait_is_caught_by_these_tests(folder: Path) -> None:
    """Planted: what would happen if ranks carried plans out as they read them."""
    ranks = open_model(folder, wrap=lambda rank, true: true if rank else Eager(true))
    ranks.group.run_step(ranks.step_input(FIRST))
    refuse_next(ranks, 1)
    before = ranks.kept()
    failed_step(ranks)
    assert ranks.kept()[0] != before[0]


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("digest", [plan_digest(FIRST), "0" * 64], ids=["stale", "wrong"])
def test_a_digest_of_another_plan_changes_no_rank(folder: Path, rank: int, digest: str) -> None:
    ranks = open_model(folder, wrap=lambda r, true: Liar(true, digest) if r == rank else true)
    ranks.group.run_step(ranks.step_input(FIRST))
    before = ranks.kept()
    failure = failed_step(ranks)
    assert failure.code == "contract.ranks_disagree"
    assert (failure.rank, failure.phase) == (rank, PLAN_PHASE)
    assert ranks.kept() == before
    assert read_ledger(ranks.recorder.ledger())[-1].error == "contract.ranks_disagree"


@pytest.mark.parametrize("digest", ["", "0" * 63, "A" * 64])
def test_what_is_no_digest_is_refused_as_metadata(folder: Path, digest: str) -> None:
    ranks = open_model(folder, wrap=lambda rank, true: Liar(true, digest) if rank else true)
    ranks.group.run_step(ranks.step_input(FIRST))
    before = ranks.kept()
    assert failed_step(ranks).code == "contract.metadata"
    assert ranks.kept() == before


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("kind", FaultKind)
def test_no_fault_in_the_plans_phase_changes_a_rank(
    folder: Path, kind: FaultKind, rank: int
) -> None:
    ranks = open_model(folder, faults={rank: Fault(kind, PLAN_PHASE, WORLD_SIZE)})
    before = ranks.kept()
    failure = failed_step(ranks, FIRST)
    assert (failure.code, failure.rank, failure.phase) == (CODES[kind], rank, PLAN_PHASE)
    assert ranks.kept() == before


def test_the_cut_of_the_stream_makes_no_difference(folder: Path) -> None:
    ranks = open_model(folder, delivery=byte_by_byte)
    refuse_next(ranks, 0)
    before = ranks.kept()
    failure = failed_step(ranks, FIRST)
    assert (failure.code, failure.rank, failure.phase) == ("protocol.closed", 0, PLAN_PHASE)
    assert ranks.kept() == before


def test_a_second_fence_is_refused_where_it_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is agreed then, and the fence stands where the first partial is due."""
    ranks = open_model(folder)
    output = ranks.workers[1].output
    write = output.write

    def write_twice(data: bytes) -> None:
        write(data)
        if take_apart(data).kind is Kind.FENCE:
            write(next_in_sequence(data))

    monkeypatch.setattr(output, "write", write_twice)
    failure = failed_step(ranks, FIRST)
    assert (failure.code, failure.rank) == ("contract.fence", 1)
    assert failure.phase == ranks.spec.phases[0]


def next_in_sequence(raw: bytes) -> bytes:
    """The same frame again, as if it were another."""
    parts = take_apart(raw)
    fields = list(parts.fields)
    fields[SEQUENCE_FIELD] += 1
    return HEADER.pack(MAGIC, *fields) + parts.metadata + parts.payload


def plan_command(**changes: Any) -> bytes:
    agreed: dict[str, Any] = {
        "phase": PLAN_PHASE,
        "plan": as_json(encode_plan(FIRST)),
        "rank": 0,
        "step": 0,
    }
    return Command(**agreed | changes).to_bytes()


@pytest.mark.parametrize(
    "changes",
    [{"phase": "layers.0.mixer"}, {"plan": None}, {"plan": {}}, {"rank": 1}, {"step": 1}],
    ids=lambda changes: next(iter(changes)),
)
def test_a_worker_takes_exactly_the_agreed_command(folder: Path, changes: dict[str, Any]) -> None:
    ranks = open_model(folder)
    before = ranks.kept()
    ranks.links[0].send(Kind.COMMAND, plan_command(**changes), deadline=1e9)
    assert refusal(ranks) == "contract.metadata"
    assert ranks.kept() == before


@pytest.mark.parametrize("again", ["plan", "phase", "step"])
def test_only_the_first_phases_command_carries_a_plan_out(folder: Path, again: str) -> None:
    ranks = open_model(folder)
    before = ranks.kept()
    link = ranks.links[0]
    link.send(Kind.COMMAND, plan_command(), deadline=1e9)
    link.receive(deadline=1e9)
    first: dict[str, Any] = {"phase": ranks.spec.phases[0], "plan": None, "rank": 0, "step": 0}
    wrong = {"plan": as_json(encode_plan(FIRST)), "phase": ranks.spec.phases[1], "step": 1}
    link.send(Kind.COMMAND, Command(**first | {again: wrong[again]}).to_bytes(), deadline=1e9)
    assert refusal(ranks) == "contract.metadata"
    assert ranks.kept() == before


def refusal(ranks: ModelRanks) -> str:
    """The code with which worker 0 ended."""
    with pytest.raises(PeerError):
        ranks.links[0].receive(deadline=1e9)
    failure = ranks.workers[0].failure
    assert failure is not None
    return failure.code


def test_a_step_without_its_plan_is_our_mistake(folder: Path) -> None:
    ranks = open_model(folder)
    planned = ranks.step_input(FIRST)
    for wrong in (replace(planned, plan=None), replace(planned, operand=b"")):
        with pytest.raises(MisuseError):
            ranks.group.run_step(wrong)
    assert ranks.group.poison is None
