"""10,000 random events over whole simulated services; then the walk must notice planted faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from coordinator.engine import Engine
from coordinator.model_setup import Machine, ModelSetup, set_up
from coordinator.request import Finished, Outcome, Token, Update
from coordinator.scheduler_walk import InvariantError
from errors import MisuseError
from manifest.run_manifest import RunManifest, from_flags
from program.slots import Resident
from simulation.delivery import seeded_cuts, whole
from simulation.serving_faults import AnyFault, ServingFault, Strike
from simulation.serving_walk import CODES, ServingWalk, phases_of
from simulation.simulated_service import SimulatedService, Simulation
from simulation.stand_in import StandIn
from testdata.golden.seeded_checkpoint import write_checkpoint
from testdata.golden.shapes import BASE, Shape
from tools.python.tiers import mostly_exhaustive

WALKS = 50
EVENTS = 10_000
RANKS = 2
# Small frames, and a phase of every kind.
SHAPE: Shape = replace(
    BASE,
    pattern="LF",
    hidden=8,
    intermediate=8,
    vocab=40,
    heads=2,
    kv_heads=2,
    head_dim=8,
    key_heads=2,
    value_heads=2,
    key_dim=4,
    value_dim=4,
)
World = tuple[ModelSetup, RunManifest]
ModuleWorlds = dict[str, World]


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> ModuleWorlds:
    folders = tmp_path_factory.mktemp("model")
    for pattern in ("LF", "F"):
        write_checkpoint(folders / pattern, replace(SHAPE, pattern=pattern), 1)
    worlds = {p: world_of(folders / "LF", p) for p in ("sharded", "replicated")}
    # Two phases a step: for the long walks.
    return worlds | {"short": world_of(folders / "F", "sharded")}


def world_of(folder: Path, program: str) -> World:
    """Small pools, so that pressure, reuse and compaction are everyday."""
    flags = {"program": f"qwen35/{program}", "ranks": str(RANKS), "model.checkpoint": str(folder)}
    flags |= {"model.max_batch": "4", "model.max_step_tokens": "12", "model.page_tokens": "3"}
    flags |= {"deadlines.phase_ms": "5000"}
    machine = Machine(1 << 30, frozenset({0, 1}))
    ample = set_up(from_flags(flags), lambda: machine).capacity.ranks
    memory = [
        b.weight_bytes + b.scratch_bytes + b.reserve_bytes + 4 * b.slot_bytes + 16 * b.page_bytes
        for b in ample
    ]
    flags["model.rank_memory_bytes"] = ",".join(map(str, memory))
    manifest = from_flags(flags)
    return set_up(manifest, lambda: machine), manifest


def strike_of(random: Random, setup: ModelSetup) -> tuple[int, Strike] | None:
    """A fault in six of ten walks, of any kind, anywhere."""
    if random.random() < 0.4:
        return None
    kind: AnyFault = random.choice(list(CODES))
    # Rank 0's hidden digest is what the others are held against, so a wrong one names them.
    rank = 1 if kind is ServingFault.WRONG_HIDDEN_DIGEST else random.randrange(RANKS)
    phase = random.choice(phases_of(kind, setup.spec.phases))
    return rank, Strike(kind, phase, 1 + random.randrange(2, 90), RANKS)


def walk_of(worlds: ModuleWorlds, seed: int, **planted: Any) -> ServingWalk:
    random = Random(seed)
    setup, manifest = worlds["short"]
    strike = strike_of(random, setup)
    simulation = Simulation(
        setup=setup,
        manifest=manifest,
        step_tokens=random.choice([1, 2, 4, 5, 12]),
        waiting_max=random.choice([4, 6, 9]),
        strikes={} if strike is None else dict([strike]),
        delivery=random.choice([whole, whole, whole, seeded_cuts(seed)]),
        **planted,
    )
    return ServingWalk(seed, SimulatedService(simulation), strike)


@pytest.mark.parametrize(
    ("part", "wanted"),
    [
        (0, EVENTS // 8),
        pytest.param(0, EVENTS // 2, marks=pytest.mark.exhaustive),
        pytest.param(1, EVENTS // 2, marks=pytest.mark.exhaustive),
    ],
)
def test_every_rule_holds_after_every_event(worlds: ModuleWorlds, part: int, wanted: int) -> None:
    """Walks until so many events were made; a failing seed is in the message."""
    events, outcomes, failed = 0, dict.fromkeys(Outcome, 0), 0
    seed = part * 1_000_000
    while events < wanted:
        walk = walk_of(worlds, seed)
        try:
            walk.run(EVENTS // WALKS)
            walk.end()
        except (InvariantError, MisuseError) as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
        events += walk.events
        for client in walk.clients:
            if client.finished is not None:
                outcomes[client.finished.outcome] += 1
        failed += walk.failed
        seed += 1
    assert all(outcomes.values()), outcomes
    assert failed >= wanted // 1000


def test_the_same_seed_gives_the_same_walk(worlds: ModuleWorlds) -> None:
    seen = []
    for _ in range(2):
        walk = walk_of(worlds, 5)
        walk.run(150)
        walk.end()
        seen.append(
            [(client.request_id, client.seen, str(client.finished)) for client in walk.clients]
        )
    assert seen[0] == seen[1]


@pytest.mark.parametrize("kind", list(CODES), ids=lambda kind: kind.value)
@pytest.mark.parametrize(
    "program", ["sharded", pytest.param("replicated", marks=pytest.mark.exhaustive)]
)
def test_every_fault_in_every_phase(worlds: ModuleWorlds, program: str, kind: AnyFault) -> None:
    setup, manifest = worlds[program]
    ranks = (1,) if kind is ServingFault.WRONG_HIDDEN_DIGEST else range(RANKS)
    for phase in phases_of(kind, setup.spec.phases):
        for rank in ranks:
            strike = (rank, Strike(kind, phase, 4, RANKS))
            simulation = Simulation(setup, manifest, 5, strikes=dict([strike]))
            walk = ServingWalk(7, SimulatedService(simulation), strike)
            walk.run(60)
            walk.end()
            assert walk.failed, f"{kind} on rank {rank} in {phase} did not strike"


class KeepsSlot(StandIn):
    """A new request finds what the last one left in its slot."""

    def admit(self, slot: int) -> None:
        if self.table.admissions == 0:
            super().admit(slot)

    def clear(self, slot: int, resident: Resident) -> None:
        """Nothing is cleared."""


class LosesMove(StandIn):
    """A request that moves leaves its state where it was."""

    def move(self, from_slot: int, to_slot: int) -> None:
        """Nothing moves."""


class SharesPage(StandIn):
    """Every request's first page is page 0."""

    def locate(self, row: Any, position: int) -> tuple[int, int]:
        page, place = super().locate(row, position)
        return (0 if position < self._limits.page_tokens else page), place


class ForgetsChunk(StandIn):
    """A chunk that continues starts from nothing."""

    def advance(self, row: Any) -> None:
        if row.start_position and len(row.token_ids) > 1:
            self.slots[row.slot] = 1
        super().advance(row)


class LeaksOnOneRank(StandIn):
    """Rank 1 alone keeps slots."""

    def admit(self, slot: int) -> None:
        if self._rank != 1 or self.table.admissions == 0:
            super().admit(slot)

    def clear(self, slot: int, resident: Resident) -> None:
        if self._rank != 1:
            super().clear(slot, resident)


@pytest.mark.parametrize(
    "rank",
    mostly_exhaustive(
        [KeepsSlot, LosesMove, SharesPage, ForgetsChunk, LeaksOnOneRank],
        lambda rank: rank is LosesMove,
    ),
)
def test_a_faulty_rank_is_noticed(worlds: ModuleWorlds, rank: type[StandIn]) -> None:
    assert notices(worlds, make_rank=rank)


class LosesEnds(Engine):
    """Of several updates the last is lost."""

    def _publish(self, updates: Iterable[Update]) -> None:
        known = list(updates)
        super()._publish(known[: max(1, len(known) - 1)])


class Repeats(Engine):
    """A failure's error is sent to every client twice."""

    def _publish(self, updates: Iterable[Update]) -> None:
        known = list(updates)
        for update in known:
            if isinstance(update, Finished) and update.outcome is Outcome.FAILED:
                self._outboxes[update.request_id].put(update)
        super()._publish(known)


class Hasty(Engine):
    """Ends are told before the step that cleans up."""

    def _publish(self, updates: Iterable[Update]) -> None:
        known = list(updates)
        for update in known:
            client = self._outboxes.get(update.request_id)
            if isinstance(update, Token) and client is not None and len(known) > 2:
                client.put(update)
        super()._publish(known)


class GoesOn(Engine):
    """A failure is forgotten."""

    def _fail(self, cause: Any, step: int | None) -> None:
        self._ranks.retire(cause)


class TakesLate(Engine):
    """What clients say while a step runs is taken after its tokens were published."""

    def _take(self) -> None:
        if self._scheduler.snapshot().in_flight is None:
            super()._take()


@pytest.mark.parametrize(
    "engine",
    mostly_exhaustive(
        [LosesEnds, Repeats, Hasty, GoesOn, TakesLate], lambda engine: engine is GoesOn
    ),
)
def test_a_faulty_engine_is_noticed(worlds: ModuleWorlds, engine: type[Engine]) -> None:
    assert notices(worlds, make_engine=engine)


def test_a_session_that_believes_every_digest_is_noticed(
    worlds: ModuleWorlds, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coordinator.model_session._demand_agreement", lambda *_: None)
    assert notices(worlds)


def notices(worlds: ModuleWorlds, **planted: Callable[..., Any]) -> bool:
    for seed in range(40):
        walk = walk_of(worlds, seed, **planted)
        try:
            walk.run(150)
            walk.end()
        except (InvariantError, MisuseError, KeyError):
            return True
    return False
