"""One rank behind the worker's protocol: what it refuses, and that a refusal changes nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from errors import ConfigError, ContractError, MisuseError
from model.bound_qwen35 import BoundQwen35, OpenedQwen35, open_qwen35
from program.digest import program_digest
from program.plan import Admit, PlanLimits, Row, Score, StepPlan
from program.plan_codec import encode_plan, plan_digest
from program.qwen35 import Variant, qwen35_program
from program.qwen35_config import read_config
from program.qwen35_load import LoadOrder, ModelSource
from program.qwen35_memory import WeightsDtype
from program.spec import Dtype
from program.step_report import RESULT_TENSOR
from testdata.golden.seeded_checkpoint import write_checkpoint
from testdata.golden.shapes import BASE

LIMITS = PlanLimits(
    vocab_size=96, context_tokens=64, slots=2, pages=8, page_tokens=16, tokens_per_step=32
)
ORDER = LoadOrder(LIMITS, WeightsDtype.AUTO, poison_state=True)
REPORT_KEYS = {
    "bytes_held",
    "bytes_read",
    "peak_rss_bytes",
    "skipped_bytes",
    "skipped_tensors",
    "state_bytes",
    "tensors",
}
ENTER = Admit(0, 7, 1, (0, 1), 20, 20, None)
PLAN = StepPlan(0, admissions=(ENTER,), rows=(Row(7, 0, 0, (3, 4, 5), Score(last=2, top=4)),))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model"
    write_checkpoint(path, BASE, 1)
    return path


@pytest.fixture
def affinity() -> Iterator[set[int]]:
    """The processors of this process, which a load may narrow."""
    before = os.sched_getaffinity(0)
    yield before
    os.sched_setaffinity(0, before)


def source(folder: Path, compute: Dtype = Dtype.FLOAT32) -> dict[str, str]:
    return ModelSource(str(folder), compute).to_json()


def opened(folder: Path, rank: int = 0, world_size: int = 1, **options: Any) -> OpenedQwen35:
    parameters = source(folder, options.get("compute", Dtype.FLOAT32))
    return open_qwen35(options.get("variant", Variant.SHARDED), parameters, rank, world_size)


def loaded(folder: Path, **options: Any) -> BoundQwen35:
    executor = opened(folder, **options).executor
    executor.load_local(ORDER.to_json())
    return executor


def run(executor: BoundQwen35, plan: StepPlan, stages: int) -> Any:
    """A step of one rank alone: its partials are the sums."""
    executor.accept(encode_plan(plan))
    executor.begin(None)
    for stage in range(stages):
        executor.reduced(stage, bytes(executor.partial(stage)))
    return executor.finish()


@pytest.mark.parametrize("variant", list(Variant))
@pytest.mark.parametrize("compute", list(Dtype))
def test_the_program_follows_from_the_checkpoint(
    folder: Path, variant: Variant, compute: Dtype
) -> None:
    rank = opened(folder, 1, 2, variant=variant, compute=compute)
    expected = qwen35_program(read_config(folder), variant, 2, compute)
    assert rank.spec == expected
    assert rank.digest == program_digest(expected)


def test_parameters_that_are_not_the_agreed_ones(folder: Path) -> None:
    for wrong in ({}, {**source(folder), "extra": 1}, {**source(folder), "checkpoint": "x"}):
        with pytest.raises(ContractError) as refusal:
            open_qwen35(Variant.SHARDED, wrong, 0, 1)
        assert refusal.value.code == "contract.metadata"


def test_checkpoints_and_degrees_that_cannot_be(folder: Path, tmp_path: Path) -> None:
    for path, world_size in ((tmp_path / "missing", 1), (folder, 3)):
        with pytest.raises(ConfigError):
            open_qwen35(Variant.SHARDED, source(path), 0, world_size)


@pytest.mark.parametrize("rank", [0, 1])
def test_the_load_report(folder: Path, rank: int) -> None:
    bound = opened(folder, rank, 2)
    report = bound.executor.load_local(ORDER.to_json())
    assert set(report) == REPORT_KEYS
    assert all(type(value) is int and value >= 0 for value in report.values())
    slot = sum(s.local_bytes for s in bound.spec.state if s.scope.value == "slot")
    token = sum(s.local_bytes for s in bound.spec.state if s.scope.value == "token")
    assert report["state_bytes"] == 2 * slot + 8 * 16 * token
    assert report["tensors"] == len(bound.spec.weights)


def test_a_rank_binds_itself_to_its_processors(folder: Path, affinity: set[int]) -> None:
    processor = max(affinity)
    order = LoadOrder(LIMITS, WeightsDtype.AUTO, cpus=(processor,))
    opened(folder).executor.load_local(order.to_json())
    assert os.sched_getaffinity(0) == {processor}


def test_a_load_order_that_is_not_the_agreed_form_reads_nothing(folder: Path) -> None:
    executor = opened(folder).executor
    with pytest.raises(ContractError) as refusal:
        executor.load_local({**ORDER.to_json(), "weights_dtype": "int8"})
    assert refusal.value.code == "contract.metadata"
    with pytest.raises(MisuseError):
        executor.accept(encode_plan(PLAN))


def test_weights_that_vanish_between_ack_and_load(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "model"))
    executor = opened(copy).executor
    next(copy.glob("*.safetensors")).unlink()
    with pytest.raises(ConfigError) as refusal:
        executor.load_local(ORDER.to_json())
    assert refusal.value.code == "checkpoint.unreadable"


@pytest.mark.parametrize("compute", list(Dtype))
def test_a_step_gives_partials_of_the_agreed_type_and_a_report(
    folder: Path, compute: Dtype
) -> None:
    executor = loaded(folder, compute=compute)
    assert executor.accept(encode_plan(PLAN)) == plan_digest(PLAN)
    assert executor.begin(None) == (3, 64)
    partial = executor.partial(0)
    assert memoryview(partial).nbytes == 3 * 64 * compute.item_bytes
    assert np.isfinite(np.frombuffer(partial, compute.value)).all()


def test_the_primary_alone_answers(folder: Path) -> None:
    artifact = run(loaded(folder), PLAN, 8)
    assert (artifact.tensor, artifact.shape) == (RESULT_TENSOR, (8, 2))
    report = json.loads(json.dumps(artifact.report))
    assert report["plan_digest"] == plan_digest(PLAN)
    assert [entry["position"] for entry in report["artifacts"]] == [1]
    other = run(loaded(folder, rank=1, world_size=2), PLAN, 8)
    assert (other.shape, other.report["artifacts"]) == ((0, 2), [])


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ({}, "contract.metadata"),
        ({**encode_plan(PLAN), "step": True}, "contract.metadata"),
        (encode_plan(StepPlan(1)), "contract.allocation"),
        (encode_plan(StepPlan(0, rows=(Row(7, 0, 0, (1,)),))), "contract.allocation"),
        (
            encode_plan(StepPlan(0, admissions=(ENTER,), rows=(Row(7, 0, 0, (96,)),))),
            "contract.program",
        ),
    ],
)
def test_a_refused_plan_changes_nothing(folder: Path, plan: dict[str, Any], code: str) -> None:
    clean, refusing = loaded(folder), loaded(folder)
    with pytest.raises(ContractError) as refusal:
        refusing.accept(plan)
    assert refusal.value.code == code
    assert run(refusing, PLAN, 8) == run(clean, PLAN, 8)


def test_calls_out_of_order_are_our_own_mistakes(folder: Path) -> None:
    early = opened(folder).executor
    for call in (lambda: early.accept(encode_plan(PLAN)), lambda: early.partial(0), early.finish):
        with pytest.raises(MisuseError):
            call()
    ready = loaded(folder)
    with pytest.raises(MisuseError):
        ready.begin(None)
    with pytest.raises(MisuseError):
        ready.load_tensor("wq", b"")
    ready.accept(encode_plan(PLAN))
    with pytest.raises(MisuseError):
        ready.begin(((1, 64), b""))
    run(ready, PLAN, 8)
    with pytest.raises(MisuseError):
        ready.begin(None)
