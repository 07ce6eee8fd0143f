"""What is predicted once is what encoding each frame would give."""

from __future__ import annotations

import pytest

from wire.agreed import AgreedMetadata
from wire.metadata import Command, Fence, Result, Tensor

PHASES = ("attention", "mlp")
SHAPE = (2, 7, 16)


def tensor(phase: str, name: str) -> bytes:
    return Tensor(dtype="<f4", phase=phase, rank=3, shape=SHAPE, tensor=name).to_bytes()


@pytest.fixture
def agreed() -> AgreedMetadata:
    return AgreedMetadata(3, PHASES, "<f4")


def test_tensors(agreed: AgreedMetadata) -> None:
    assert agreed.weight("q", SHAPE) == (tensor("load", "q"), 896)
    assert agreed.operand(SHAPE) == (tensor("input", "x"), 896)
    for stage, phase in enumerate(PHASES):
        assert agreed.partial(stage, SHAPE) == (tensor(phase, f"{phase}.partial"), 896)
        assert agreed.reduction(stage, SHAPE) == (tensor(phase, f"{phase}.total"), 896)


def test_names_and_phases_do_not_collide(agreed: AgreedMetadata) -> None:
    """The same name as another kind, and the same kind with another shape."""
    assert agreed.weight("x", SHAPE) != agreed.operand(SHAPE)
    assert agreed.partial(0, SHAPE) != agreed.partial(0, (1, 1, 16))
    assert agreed.partial(0, (1, 1, 16)).payload_bytes == 64


def test_fences_and_commands(agreed: AgreedMetadata) -> None:
    for stage, phase in enumerate(PHASES):
        fence = Fence(phase=phase, rank=3, report=None, tensors=1)
        assert agreed.fence(stage) == (fence.to_bytes(), 0)
        for step in (0, 1, 2**53 - 1):
            command = Command(phase=phase, plan=None, rank=3, step=step)
            assert agreed.command(stage, step) == (command.to_bytes(), 0)


def test_plans(agreed: AgreedMetadata) -> None:
    plan = {"step": 4}
    command = Command(phase="plan", plan=plan, rank=3, step=4)
    assert agreed.plan(plan, 4) == (command.to_bytes(), 0)
    report = {"plan_digest": "0" * 64}
    fence = Fence(phase="plan", rank=3, report=report, tensors=0)
    assert agreed.plan_fence("0" * 64) == (fence.to_bytes(), 0)


def test_results(agreed: AgreedMetadata) -> None:
    for step in (0, 12):
        result = Result(
            dtype="<f4",
            phase="result",
            rank=3,
            shape=SHAPE,
            tensor="y",
            report=None,
            step=step,
        )
        assert agreed.result("y", SHAPE, step) == (result.to_bytes(), 896)


def test_what_is_known_is_not_encoded_again(agreed: AgreedMetadata) -> None:
    assert agreed.fence(0).metadata is agreed.fence(0).metadata
    assert agreed.partial(1, SHAPE).metadata is agreed.partial(1, SHAPE).metadata


def test_only_partials_and_reductions_have_the_partial_dtype() -> None:
    wide = AgreedMetadata(3, PHASES, "<f8")
    assert wide.partial(0, SHAPE).payload_bytes == wide.reduction(0, SHAPE).payload_bytes == 1792
    assert wide.weight("q", SHAPE).payload_bytes == wide.operand(SHAPE).payload_bytes == 896
    assert wide.result("y", SHAPE, 0).payload_bytes == 896
    assert b'"dtype":"<f8"' in wide.partial(0, SHAPE).metadata
