"""Failures of real loads and steps name rank, phase and the worker's own words; nothing is left."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import simulation.replica_worker
from coordinator.command_score import score
from coordinator.machine import visible_machine
from coordinator.model_cases import (
    WEIGHTS,
    WeightFile,
    bindings,
    model_run,
    score_options,
    small_model,
    workers_of,
)
from coordinator.model_run import ModelBindings, running_model
from coordinator.model_session import ModelSession
from coordinator.model_setup import set_up
from coordinator.process_table import children
from coordinator.run_files import LEDGER, LOADS
from errors import ContractError, PeerError, ProtocolError
from manifest.run_manifest import RunManifest
from program.plan import StepPlan
from tools.python.tiers import mostly_exhaustive
from wire.ledger import read_ledger
from wire.recorder import Recorder

DOWN = "model.layers.1.mlp.down_proj.weight"


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    before = children()
    yield
    assert children() == before


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_model(tmp_path / "model")


def spoil_column(folder: Path, column: int, value: bytes) -> None:
    """One element of row 0 of DOWN, [64, 96] binary32."""
    file = WeightFile.read(folder / WEIGHTS)
    start = file.place(DOWN).start + 4 * column
    file.data[start : start + 4] = value
    file.write(folder / WEIGHTS)


def score_three(folder: Path, manifest: RunManifest, ledger: Path | None = None) -> None:
    tokens = folder.parent / "tokens.json"
    tokens.write_text(json.dumps([1, 2, 3]))
    score(score_options(manifest, tokens, ledger=ledger), bindings())


NAN, INFINITY = bytes.fromhex("0000c07f"), bytes.fromhex("000080ff")


@pytest.mark.parametrize(
    ("column", "rank", "value"),
    mostly_exhaustive(
        [(5, 0, NAN), (90, 1, NAN), (5, 0, INFINITY), (90, 1, INFINITY)],
        lambda case: case in ((5, 0, INFINITY), (90, 1, NAN)),
    ),
)
def test_weights_that_are_no_numbers_stop_the_load_of_the_rank_that_reads_them(
    folder: Path, column: int, rank: int, value: bytes
) -> None:
    spoil_column(folder, column, value)
    with pytest.raises(ProtocolError) as failure:
        score_three(folder, model_run(folder, model__check_weights="true"))
    assert (failure.value.code, failure.value.exit_code) == ("protocol.closed", 3)
    assert (failure.value.rank, failure.value.phase) == (rank, "load")
    # The worker's exit code and its own code and field.
    for part in ("ended with status 2", "checkpoint.values", DOWN.removeprefix("model.")):
        assert part in failure.value.message
    assert "\n" not in failure.value.message


def test_unchecked_weights_that_are_no_numbers_never_give_a_result(
    folder: Path, tmp_path: Path
) -> None:
    spoil_column(folder, 90, NAN)
    with pytest.raises(PeerError) as failure:
        score_three(folder, model_run(folder), tmp_path / "run")
    assert failure.value.exit_code == 3
    assert "numerics.not_finite" in failure.value.message
    entries = read_ledger((tmp_path / "run" / LEDGER).read_bytes())
    assert entries[-1].error == failure.value.code
    assert not (tmp_path / "run" / LOADS).exists()


def test_checked_weights_that_are_numbers_load(folder: Path) -> None:
    score_three(folder, model_run(folder, model__check_weights="true"))


def test_a_file_that_changes_between_the_check_and_the_load(folder: Path) -> None:
    """The ranks open the folder themselves, so what they find is judged again."""
    manifest = model_run(folder)
    given = bindings()
    setup = set_up(manifest, given.machine, 64)
    path = folder / WEIGHTS
    os.truncate(path, path.stat().st_size - 4)
    with (
        pytest.raises(PeerError) as failure,
        running_model(setup, manifest, given, Recorder(keep_bytes=False)),
    ):
        pass
    assert (failure.value.rank, failure.value.phase) == (0, "load")
    assert "checkpoint.header" in failure.value.message


def test_an_accidental_replica_is_refused(folder: Path) -> None:
    given = bindings(lambda _: workers_of(simulation.replica_worker.__name__))
    manifest = model_run(folder)
    setup = set_up(manifest, given.machine, 64)
    with (
        pytest.raises(ContractError) as failure,
        running_model(setup, manifest, given, Recorder(keep_bytes=False)),
    ):
        pass
    assert (failure.value.code, failure.value.rank) == ("contract.allocation", 1)


def test_each_rank_runs_on_its_own_device(folder: Path) -> None:
    """The ranks' affinity while they run, as the kernel has it."""
    visible = sorted(os.sched_getaffinity(0))
    ordinals = "0" if len(visible) == 1 else "1,0"
    ranks = 1 + ordinals.count(",")
    manifest = model_run(folder, ranks=ranks, model__device_ordinals=ordinals)
    from_kernel = ModelBindings(bindings().launcher, visible_machine)
    seen: dict[int, set[int]] = {}

    setup = set_up(manifest, from_kernel.machine, 64)
    before = children()
    with running_model(setup, manifest, from_kernel, Recorder(keep_bytes=False)) as session:
        session.step(StepPlan(0))
        for pid in children() - before:
            seen[pid] = os.sched_getaffinity(pid)
    wanted = [{visible[int(ordinal)]} for ordinal in ordinals.split(",")]
    assert sorted(seen.values(), key=min) == sorted(wanted, key=min)


def step_after_the_end_of_a_rank(session: ModelSession, pid: int) -> None:
    session.step(StepPlan(0))
    os.kill(pid, signal.SIGKILL)
    session.step(StepPlan(1))


def test_a_worker_that_dies_while_idle_is_named_with_its_end(folder: Path) -> None:
    manifest = model_run(folder)
    given = bindings()
    setup = set_up(manifest, given.machine, 64)
    before = children()
    with (
        pytest.raises(PeerError) as failure,
        running_model(setup, manifest, given, Recorder(keep_bytes=False)) as session,
    ):
        step_after_the_end_of_a_rank(session, max(children() - before))
    assert failure.value.code == "protocol.closed"
    assert failure.value.rank is not None
    assert "ended with status -9" in failure.value.message


def test_a_worker_that_does_not_leave_cleanly_fails_the_run(folder: Path) -> None:
    manifest = model_run(folder, deadlines__close_ms=200)
    given = bindings()
    setup = set_up(manifest, given.machine, 64)
    before = children()
    with (
        pytest.raises(ProtocolError) as failure,
        running_model(setup, manifest, given, Recorder(keep_bytes=False)),
    ):
        os.kill(max(children() - before), signal.SIGSTOP)
    assert (failure.value.code, failure.value.phase) == ("protocol.closed", "close")
