"""Walks keep every invariant; a broken one is noticed. A failing seed belongs into SEEDS."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from coordinator.group import Group
from simulation import block_walk
from simulation.block_walk import FAMILIES, BrokenInvariant, plan_of, walk
from simulation.faults import APPLY, FaultKind
from tools.python.tiers import mostly_exhaustive
from wire.recorder import Record, Recorder

SEEDS = range(120)


@pytest.mark.parametrize("part", mostly_exhaustive(range(8), lambda part: part in (0, 3)))
def test_walks(part: int) -> None:
    for seed in SEEDS[part::8]:
        try:
            walk(seed)
        except BrokenInvariant as broken:
            pytest.fail(f"seed {seed}, {plan_of(seed)}: {broken}")


def test_the_seeds_reach_every_fault_shape_and_cut() -> None:
    plans = [plan_of(seed) for seed in SEEDS]
    faults = {(plan.fault.kind, plan.fault.phase) for plan in plans if plan.fault}
    assert faults == {(kind, phase) for kind in FaultKind for phase in block_walk.PHASES}
    assert {(plan.ranks, plan.cuts) for plan in plans} == {
        (ranks, cuts) for ranks in (1, 2, 4) for cuts in ("whole", "bytes", "cuts")
    }
    assert {plan.steps for plan in plans} == {1, 2, 3, 4}
    assert any(plan.fault is None for plan in plans)
    assert set(FAMILIES) == set(APPLY)


def _forgets_poison(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Group, "stop", lambda group, cause: None)


def _forgets_frames(patch: pytest.MonkeyPatch) -> None:
    record, seen = Recorder.record, [0]

    def every_other(recorder: Recorder, one: Record) -> None:
        seen[0] += 1
        if seen[0] % 40:
            record(recorder, one)

    patch.setattr(Recorder, "record", every_other)


def _swallows_faults(patch: pytest.MonkeyPatch) -> None:
    for kind in FaultKind:
        patch.setitem(APPLY, kind, lambda parts, fault, target: target.write(parts.joined()))


def _mixes_up_classes(patch: pytest.MonkeyPatch) -> None:
    for kind in FaultKind:
        patch.setitem(FAMILIES, kind, "deadline")


@pytest.mark.parametrize(
    "plant",
    mostly_exhaustive(
        [_forgets_poison, _forgets_frames, _swallows_faults, _mixes_up_classes],
        lambda plant: plant is _mixes_up_classes,
    ),
)
def test_a_planted_fault_breaks_an_invariant(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    broken = 0
    for seed in SEEDS[:12]:
        try:
            walk(seed)
        except BrokenInvariant:
            broken += 1
    assert broken
