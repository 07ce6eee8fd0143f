"""A rank that fails while it serves, over real processes.

Whatever it does and wherever: noticed within the bound, named by rank, phase and step; every live
request ends with that one error, later ones at once; no process is left.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from coordinator.engine import Engine, Failure
from coordinator.gates.live import Live, LiveOptions, Request, Worker, gate_model, live
from coordinator.process_table import children, open_descriptors, process_state
from coordinator.request import Outcome, Update
from errors import PeerError
from simulation import serving_worker
from simulation.faults import FaultKind
from simulation.serving_faults import IDLE_PHASE, AnyFault, ServingFault
from tools.python.tiers import mostly_exhaustive

# Short, and still many times what a rank needs for a phase.
PHASE_MS = 800
# Noticing a dead rank takes milliseconds; this is for a machine that does much else.
AT_ONCE_S = 5.0
FIRST, LAST = "layers.0.mixer", "layers.1.mlp"
STEP = 2
RANKS = 2
F, S = FaultKind, ServingFault


@dataclass(frozen=True)
class Case:
    """A fault of `rank`, and what it is called."""

    kind: AnyFault
    rank: int
    phase: str
    code: str

    @property
    def name(self) -> str:
        return f"{self.kind.value}-{self.rank}-{self.phase}"


CLOSED, SILENT = "protocol.closed", "deadline.receive"
CASES = [
    Case(S.KILL, 0, "plan", CLOSED),
    Case(S.KILL, 1, FIRST, CLOSED),
    Case(S.KILL, 1, "result", CLOSED),
    Case(S.STOP, 1, "plan", SILENT),
    Case(S.STOP, 0, LAST, SILENT),
    Case(S.EXCEPTION, 0, FIRST, CLOSED),
    Case(S.MEMORY_ERROR, 1, LAST, CLOSED),
    Case(S.SLOW_DRIP, 1, FIRST, SILENT),
    Case(S.STALE_REPLY, 0, FIRST, "contract.epoch"),
    Case(S.WRONG_PLAN_DIGEST, 1, "plan", "contract.ranks_disagree"),
    Case(S.WRONG_HIDDEN_DIGEST, 1, "result", "contract.ranks_disagree"),
    # Of the eight faults of the evidence some; all of them, in all phases, are simulated.
    Case(F.TRUNCATED_FRAME, 1, "plan", "protocol.truncated"),
    Case(F.CHECKSUM_CORRUPTION, 0, FIRST, "protocol.checksum"),
    Case(F.CANCELLATION_RACE, 1, FIRST, SILENT),
]


# One of each way to fail, on either rank and in each kind of phase.
ALWAYS = {S.KILL, S.EXCEPTION, S.STALE_REPLY, S.WRONG_HIDDEN_DIGEST, F.CHECKSUM_CORRUPTION}
ALWAYS |= {F.CANCELLATION_RACE}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gate_model(tmp_path_factory.mktemp("model"))


def faulty(case: Case, ranks: int = RANKS) -> Worker:
    values = {"fault": case.kind, "fault-rank": case.rank, "fault-phase": case.phase}
    values |= {"fault-epoch": 1 + STEP, "ranks": ranks}
    arguments = [part for name, value in values.items() for part in (f"--{name}", str(value))]
    return Worker(serving_worker.__name__, tuple(arguments))


def waiting_for(case: Case, ranks: int = RANKS) -> LiveOptions:
    phase_ms = PHASE_MS if case.code == SILENT else 20_000
    flags = {"deadlines.phase_ms": str(phase_ms)}
    return LiveOptions(ranks=ranks, flags=flags, worker=faulty(case, ranks))


def demand_failed(service: Live, case: Case, requests: list[Request], pids: list[int]) -> Failure:
    failure = service.engine.failure
    assert failure is not None
    cause = failure.cause
    assert (cause.code, cause.rank, cause.phase, failure.step) == (
        case.code,
        case.rank,
        case.phase,
        STEP,
    )
    for request in requests:
        assert request.end.outcome is Outcome.FAILED
        assert request.end.error is cause
    assert [process_state(pid) for pid in pids] == [None] * len(pids)
    late = service.submit([1], 2)
    service.turns(1)
    assert late.end.outcome is Outcome.FAILED
    assert late.end.error is not None
    assert late.end.error.code == "group.poisoned"
    assert not service.engine.turn()
    return failure


@pytest.mark.parametrize(
    "case",
    mostly_exhaustive(CASES, lambda case: case.kind in ALWAYS),
    ids=lambda case: case.name,
)
def test_a_rank_fails(folder: Path, case: Case) -> None:
    with live(folder, waiting_for(case)) as service:
        pids = [rank.pid for rank in service.engine.snapshot.ranks if rank.pid is not None]
        assert len(pids) == RANKS
        # Three run, of which one is in its prefill; two wait.
        requests = [service.submit([5, 6, 7], 20) for _ in range(2)]
        requests += [service.submit([8] * 30, 4), service.submit([1], 2), service.submit([2], 2)]
        service.turns(STEP)
        assert service.engine.failure is None
        began = time.monotonic()
        service.turns(1)
        bound = AT_ONCE_S + (PHASE_MS / 1000 if case.code == SILENT else 0.0)
        assert time.monotonic() - began < bound
        failure = demand_failed(service, case, requests, pids)
        # What the process wrote at its end is told with the failure.
        assert ("MemoryError" in failure.cause.message) == (case.kind is S.MEMORY_ERROR)
    assert children() == set()


@pytest.mark.exhaustive
def test_one_rank_of_four(folder: Path) -> None:
    case = Case(S.KILL, 3, LAST, CLOSED)
    with live(folder, waiting_for(case, 4)) as service:
        pids = [rank.pid for rank in service.engine.snapshot.ranks if rank.pid is not None]
        request = service.submit([5, 6, 7], 20)
        service.turns(STEP + 1)
        demand_failed(service, case, [request], pids)
    assert children() == set()


def failure_of_waiting(service: Live) -> Failure:
    """Waits as the engine does when there is nothing to do; the wake of a submit comes first."""
    for _ in range(2):
        if service.engine.failure is None:
            service.engine.wait()
    failure = service.engine.failure
    assert failure is not None
    return failure


@pytest.mark.parametrize(
    "kind",
    mostly_exhaustive([S.KILL, S.EXCEPTION, S.UNDUE_FRAME], lambda kind: kind is not S.EXCEPTION),
)
def test_a_rank_fails_between_steps(folder: Path, kind: ServingFault) -> None:
    """An idle service notices within a second; nobody has to ask for anything."""
    # The frame repeats one of the step before, and the epoch is judged first (S5).
    code = "contract.epoch" if kind is S.UNDUE_FRAME else CLOSED
    case = Case(kind, 1, IDLE_PHASE, code)
    with live(folder, waiting_for(case)) as service:
        service.submit([5, 6, 7], 2)
        service.turns(STEP + 1)
        assert service.engine.failure is None
        began = time.monotonic()
        failure = failure_of_waiting(service)
        assert time.monotonic() - began < 1.0
        assert (failure.cause.code, failure.cause.rank, failure.step) == (code, 1, None)
        late = service.submit([5], 2)
        service.turns(1)
        assert late.end.outcome is Outcome.FAILED
    assert children() == set()


def test_a_rank_that_stops_while_idle_is_found_by_the_heartbeat(folder: Path) -> None:
    case = Case(S.STOP, 1, IDLE_PHASE, SILENT)
    options = waiting_for(case)
    with live(folder, replace(options, heartbeat_s=0.2)) as service:
        service.submit([5, 6, 7], 2)
        service.turns(STEP + 1)
        # The wake of the submit, then the time of the heartbeat.
        service.engine.wait()
        service.engine.wait()
        service.turns(1)
        failure = service.engine.failure
        assert failure is not None
        assert (failure.cause.code, failure.cause.rank, failure.cause.phase) == (SILENT, 1, "plan")


@pytest.mark.exhaustive
def test_a_dead_rank_is_noticed_while_another_is_awaited(folder: Path) -> None:
    """Rank 0 is stuck in a phase of 20 seconds when rank 1 dies."""
    case = Case(S.STOP, 0, FIRST, CLOSED)
    with live(folder, waiting_for(case)) as service:
        pid = service.engine.snapshot.ranks[1].pid
        assert pid is not None
        request = service.submit([5, 6, 7], 20)
        service.turns(STEP)
        threading.Timer(0.3, os.kill, (pid, signal.SIGKILL)).start()
        began = time.monotonic()
        service.turns(1)
        assert time.monotonic() - began < AT_ONCE_S
        assert isinstance(request.end.error, PeerError)
        assert (request.end.error.code, request.end.error.rank) == (CLOSED, 1)


def test_nothing_is_open_afterwards(folder: Path) -> None:
    before = open_descriptors()
    case = Case(S.KILL, 1, FIRST, CLOSED)
    with live(folder, waiting_for(case)) as service:
        service.submit([5, 6, 7], 20)
        service.turns(STEP + 1)
        assert service.engine.failure is not None
    assert open_descriptors() == before
    assert children() == set()


class DeafEngine(Engine):
    """Loses the last of several updates."""

    def _publish(self, updates: Iterable[Update]) -> None:
        all_of_them = list(updates)
        super()._publish(all_of_them[: max(1, len(all_of_them) - 1)])


@pytest.mark.exhaustive
def test_a_request_without_its_error_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate above, with an engine that loses the last of several ends."""
    monkeypatch.setattr("coordinator.gates.live.Engine", DeafEngine)
    case = Case(S.KILL, 1, FIRST, CLOSED)
    with live(folder, waiting_for(case)) as service:
        pids = [rank.pid for rank in service.engine.snapshot.ranks if rank.pid is not None]
        requests = [service.submit([5, 6, 7], 20) for _ in range(5)]
        service.turns(STEP + 1)
        with pytest.raises((AssertionError, ValueError)):
            demand_failed(service, case, requests, pids)
