"""A group over simulated ranks with toy programs: the order, the sums, and stopping for good."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from coordinator.group import Group, RankResult, StepInput
from coordinator.simulated_ranks import Loss, Milliseconds, SimulatedRanks, Tamper, changed
from errors import ContractError, MisuseError, PeerError, PoisonedError, ProtocolError
from program.canonical import digest
from program.spec import Dtype, ProgramSpec
from worker.toy_program import (
    HIDDEN_SIZE,
    REFUSED,
    RESULT_TENSOR,
    STAGES,
    answer,
    elements,
    local_spec,
    wire_spec,
)

WORLD_SIZE = 4
SHAPE = (1, 2, HIDDEN_SIZE)
PLAN = {"rows": 2}
ROWS = (2, HIDDEN_SIZE)


def operand_step(value: float = 0.5) -> StepInput:
    payload = elements(SHAPE, value, Dtype.FLOAT32)
    return StepInput(shape=SHAPE, operand=payload, result=(RESULT_TENSOR, SHAPE))


def plan_step(**plan: int) -> StepInput:
    return StepInput(shape=ROWS, plan=PLAN | plan)


def total(stage: int) -> float:
    return sum(answer(rank, stage) for rank in range(WORLD_SIZE))


def failure_of(act: Callable[[], object]) -> PeerError:
    with pytest.raises(PeerError) as failed:
        act()
    return failed.value


@pytest.mark.parametrize("order", ["rank", "pairwise"])
def test_steps_with_frames_of_their_own(order: str) -> None:
    ranks = SimulatedRanks(wire_spec(WORLD_SIZE), order)
    group = ranks.ready()
    for value in (0.5, 1.5):
        results = group.run_step(operand_step(value))
        payload = elements(SHAPE, 7.0, Dtype.FLOAT32)
        assert results == [
            RankResult(rank, RESULT_TENSOR, SHAPE, payload, None) for rank in range(WORLD_SIZE)
        ]
    for rank in range(WORLD_SIZE):
        assert ranks.journal(rank)[:2] == [
            ("load_tensor", name, ranks.weight(name, rank)) for name in ("up", "down")
        ]
        steps: list[tuple[object, ...]] = []
        for value in (0.5, 1.5):
            steps.append(("begin", elements(SHAPE, value, Dtype.FLOAT32)))
            for stage in range(2):
                summed = elements(SHAPE, total(stage), Dtype.FLOAT32)
                steps += [("partial", stage), ("reduced", stage, summed)]
            steps.append(("finish",))
        assert ranks.journal(rank)[2:] == steps
    assert ranks.clock.now() == 0.0
    assert ranks.last.epoch == 6


def test_steps_with_plans_and_folded_frames() -> None:
    ranks = SimulatedRanks(local_spec(WORLD_SIZE))
    ranks.group.open()
    reports = ranks.group.load_local(lambda rank: {"path": f"p{rank}"})
    assert reports == [{"bytes": 1000 + rank} for rank in range(WORLD_SIZE)]
    for step in range(2):
        results = ranks.group.run_step(plan_step())
        payload = elements(ROWS, 7.0, Dtype.FLOAT32)
        assert results == [
            RankResult(rank, RESULT_TENSOR, ROWS, payload, {"rows": 2})
            for rank in range(WORLD_SIZE)
        ]
        for rank in range(WORLD_SIZE):
            first, *journal = ranks.journal(rank)
            assert first == ("load_local", {"path": f"p{rank}"})
            sums = [elements(ROWS, total(stage), Dtype.FLOAT64) for stage in range(2)]
            assert journal[7 * step :] == [
                ("accept", PLAN),
                ("begin", None),
                ("partial", 0),
                ("reduced", 0, sums[0]),
                ("partial", 1),
                ("reduced", 1, sums[1]),
                ("finish",),
            ]


def test_what_is_done_meanwhile_keeps_no_rank_waiting() -> None:
    """Once, when every rank has its first command, and no answer to it was awaited."""
    ranks = SimulatedRanks(local_spec(2))
    group = ranks.ready()
    before = ranks.recorder.frames
    seen: list[int] = []
    group.run_step(plan_step(), lambda: seen.append(ranks.recorder.frames))
    # Plans, fences and commands.
    assert seen == [before + 6]


def test_the_order_over_ranks_with_plans() -> None:
    """S6: plans to all, fences of all, and only then commands; folded frames after that."""
    ranks = SimulatedRanks(local_spec(2))
    ranks.ready().run_step(plan_step())
    after_load = [
        (entry.direction, entry.rank, entry.kind) for entry in ranks.recorder.entries()[8:]
    ]
    expected = [("send", rank, "COMMAND") for rank in (0, 1)]
    expected += [("receive", rank, "FENCE") for rank in (0, 1)]
    expected += [("send", rank, "COMMAND") for rank in (0, 1)]
    for _ in STAGES:
        expected += [("receive", rank, "PARTIAL") for rank in (0, 1)]
        expected += [("send", rank, "REDUCTION") for rank in (0, 1)]
    expected += [("receive", rank, "RESULT") for rank in (0, 1)]
    assert after_load == expected


# Index of a worker's frame after HELLO, and the phase in which it is due.
WIRE_FRAMES = {1: "one", 2: "one", 3: "two", 4: "two", 5: "result"}
LOCAL_FRAMES = {1: "load", 2: "plan", 3: "one", 4: "two", 5: "result"}
ALL_FRAMES = [
    *((wire_spec, index, phase) for index, phase in WIRE_FRAMES.items()),
    *((local_spec, index, phase) for index, phase in LOCAL_FRAMES.items()),
]


def whole_run(ranks: SimulatedRanks) -> None:
    group = ranks.ready()
    group.run_step(plan_step() if group.spec.planned else operand_step())


@pytest.mark.parametrize("rank", [0, WORLD_SIZE - 1])
@pytest.mark.parametrize(("spec", "index", "phase"), ALL_FRAMES)
def test_silence_ends_at_one_deadline(
    spec: Callable[[int], ProgramSpec], index: int, phase: str, rank: int
) -> None:
    """Whatever the rank said of the phase before, from when the wait for the rank began."""
    ranks = SimulatedRanks(spec(WORLD_SIZE), tampers={(rank, index): Loss.SILENCE})
    failure = failure_of(lambda: whole_run(ranks))
    assert (failure.code, failure.rank, failure.phase) == ("deadline.receive", rank, phase)
    wait = Milliseconds.load_ms if phase == "load" else Milliseconds.phase_ms
    assert ranks.clock.now() == wait / 1000
    assert (ranks.last.error, ranks.last.rank, ranks.last.phase) == (failure.code, rank, phase)
    assert all(pipe.closed for pipe in ranks.pipes)


@pytest.mark.parametrize(("spec", "index", "phase"), ALL_FRAMES)
def test_the_end_of_a_stream_is_noticed_at_once(
    spec: Callable[[int], ProgramSpec], index: int, phase: str
) -> None:
    ranks = SimulatedRanks(spec(WORLD_SIZE), tampers={(1, index): Loss.END})
    failure = failure_of(lambda: whole_run(ranks))
    assert (failure.code, failure.rank, failure.phase) == ("protocol.closed", 1, phase)
    assert ranks.clock.now() == 0.0


REFUSED_FRAMES = {
    "load: another rank": (local_spec, 1, changed(rank=0), "contract.metadata"),
    "load: another phase": (local_spec, 1, changed(phase="one"), "contract.metadata"),
    "load: no report": (local_spec, 1, changed(report=None), "contract.metadata"),
    "load: tensors": (local_spec, 1, changed(tensors=1), "contract.metadata"),
    "plan: another phase": (local_spec, 2, changed(phase="one"), "contract.metadata"),
    "plan: no report": (local_spec, 2, changed(report=None), "contract.metadata"),
    "plan: another report": (local_spec, 2, changed(report={"bytes": 1}), "contract.metadata"),
    "plan: no digest": (
        local_spec,
        2,
        changed(report={"plan_digest": "yes"}),
        "contract.metadata",
    ),
    "plan: another digest": (
        local_spec,
        2,
        changed(report={"plan_digest": digest({"rows": 3})}),
        "contract.ranks_disagree",
    ),
    "partial: another tensor": (local_spec, 3, changed(tensor="two.partial"), "contract.metadata"),
    "partial: another shape": (wire_spec, 1, changed(shape=[2, 1, 4]), "contract.metadata"),
    "fence: another phase": (wire_spec, 2, changed(phase="two"), "contract.metadata"),
    "result: another step": (local_spec, 5, changed(step=1), "contract.metadata"),
    "result: another rank": (local_spec, 5, changed(rank=0), "contract.metadata"),
    "result: another phase": (local_spec, 5, changed(phase="two"), "contract.metadata"),
    "result: another name": (wire_spec, 5, changed(tensor="y"), "contract.metadata"),
    "result: other bytes": (
        wire_spec,
        5,
        changed(elements(SHAPE, 6.0, Dtype.FLOAT32)),
        "contract.ranks_disagree",
    ),
}


@pytest.mark.parametrize(
    ("spec", "index", "tamper", "code"), REFUSED_FRAMES.values(), ids=REFUSED_FRAMES
)
def test_what_was_not_agreed(
    spec: Callable[[int], ProgramSpec], index: int, tamper: Tamper, code: str
) -> None:
    """The frame itself carries the error in the ledger, and nothing comes after it."""
    ranks = SimulatedRanks(spec(WORLD_SIZE), tampers={(2, index): tamper})
    failure = failure_of(lambda: whole_run(ranks))
    phase = (LOCAL_FRAMES if spec is local_spec else WIRE_FRAMES)[index]
    assert isinstance(failure, ContractError)
    assert (failure.code, failure.rank, failure.phase) == (code, 2, phase)
    last = ranks.last
    assert (last.direction, last.rank, last.error) == ("receive", 2, code)
    assert last.kind is not None
    assert all(pipe.closed for pipe in ranks.pipes)


def test_no_rank_begins_before_all_have_accepted() -> None:
    other = changed(report={"plan_digest": digest({"rows": 3})})
    ranks = SimulatedRanks(local_spec(WORLD_SIZE), tampers={(WORLD_SIZE - 1, 2): other})
    failure_of(lambda: whole_run(ranks))
    for rank in range(WORLD_SIZE):
        assert [call[0] for call in ranks.journal(rank)] == ["load_local", "accept"]


def test_a_plan_that_a_rank_refuses() -> None:
    ranks = SimulatedRanks(local_spec(2))
    group = ranks.ready()
    failure = failure_of(lambda: group.run_step(plan_step(**{REFUSED: 1})))
    assert (failure.code, failure.rank, failure.phase) == ("protocol.closed", 0, "plan")


def test_the_first_failure_stays_for_ever() -> None:
    ranks = SimulatedRanks(wire_spec(WORLD_SIZE), tampers={(1, 3): Loss.SILENCE})
    failure = failure_of(lambda: whole_run(ranks))
    group, entries = ranks.group, len(ranks.recorder.entries())
    assert group.poison is failure
    for act in (
        group.open,
        lambda: group.load_weights(ranks.weight),
        lambda: group.run_step(operand_step()),
    ):
        with pytest.raises(PoisonedError) as poisoned:
            act()
        assert poisoned.value.cause is failure
    group.stop(ProtocolError("closed", "later", rank=0, phase="one"))
    assert group.poison is failure
    assert len(ranks.recorder.entries()) == entries


def test_stopped_from_outside() -> None:
    """As when a process has died while nothing is asked of it."""
    ranks = SimulatedRanks(wire_spec(WORLD_SIZE))
    group = ranks.ready()
    cause = ProtocolError("closed", "its process is gone", rank=3, phase="result")
    group.stop(cause)
    assert all(pipe.closed for pipe in ranks.pipes)
    with pytest.raises(PoisonedError) as poisoned:
        group.run_step(operand_step())
    assert poisoned.value.cause is cause


def test_closing_in_peace() -> None:
    ranks = SimulatedRanks(wire_spec(WORLD_SIZE))
    whole_run(ranks)
    ranks.group.close()
    assert all(pipe.closed for pipe in ranks.pipes)
    assert ranks.group.poison is None
    assert [entry.error for entry in ranks.recorder.entries() if entry.error] == []


def test_mistakes_of_ours_poison_nothing() -> None:
    wire, local = SimulatedRanks(wire_spec(2)), SimulatedRanks(local_spec(2))
    agreement = wire.group.agreement
    with pytest.raises(MisuseError):
        Group(agreement, [], Milliseconds())
    with pytest.raises(MisuseError):
        wire.group.load_local(lambda rank: {})
    with pytest.raises(MisuseError):
        local.group.load_weights(wire.weight)
    both = replace(operand_step(), plan=dict(PLAN))
    for group, step in ((wire.group, plan_step()), (wire.group, both), (local.group, both)):
        with pytest.raises(MisuseError):
            group.run_step(step)
        assert group.poison is None
