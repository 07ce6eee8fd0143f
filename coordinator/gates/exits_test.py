"""After every way out, the canary is bit-equal to that of fresh processes, on every rank.

Both programs, one and two ranks, and four where linear attention is sharded. The gate itself is
shown to fail on workers that keep what they should clear.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from coordinator.gates.exits import SCENES
from coordinator.gates.live import Live, LiveOptions, Worker, gate_model, live
from coordinator.gates.probe import Probe, probe
from errors import PeerError
from simulation import mutant_worker
from tools.python.tiers import mostly_exhaustive

LAYOUTS = [
    ("qwen35/sharded", 1),
    ("qwen35/sharded", 2),
    ("qwen35/replicated", 1),
    ("qwen35/replicated", 2),
    ("qwen35/sharded", 4),
]
# Whether a client cancels, drops or hangs up is all one to the ranks, so two layouts do for these.
CASES = [
    (layout, name)
    for index, layout in enumerate(LAYOUTS)
    for name in SCENES
    if index < 2 or not name.startswith(("cancel_", "drop_"))
]
# What a worker of simulation/mutant_worker.py does wrong, and whether free memory is NaN then.
MUTANTS = [
    ("stale_recurrent", False),
    ("stale_recurrent", True),
    ("stale_conv", False),
    ("stale_conv", True),
    ("move_leaves_conv", True),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gate_model(tmp_path_factory.mktemp("model"))


class Services:
    """One service at a time, for as long as its layout is asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._layout: tuple[str, int] | None = None
        self._open = ExitStack()
        self._fresh: tuple[Live, Probe] | None = None

    def of(self, layout: tuple[str, int]) -> tuple[Live, Probe]:
        """The service, and the canary of its processes before they did anything else."""
        if self._fresh is None or layout != self._layout:
            self.close()
            program, ranks = self._layout = layout
            options = LiveOptions(program=program, ranks=ranks)
            service = self._open.enter_context(live(self._folder, options))
            self._fresh = service, probe(service)
        return self._fresh

    def close(self) -> None:
        self._open.close()
        self._fresh = None


@pytest.fixture(scope="module")
def services(folder: Path) -> Iterator[Services]:
    running = Services(folder)
    yield running
    running.close()


@pytest.mark.parametrize(
    ("layout", "name"),
    mostly_exhaustive(CASES, lambda case: case[0] == LAYOUTS[1]),
    ids=str,
)
def test_nothing_is_left_behind(services: Services, layout: tuple[str, int], name: str) -> None:
    service, fresh = services.of(layout)
    SCENES[name](service)
    service.demand_idle()
    assert probe(service) == fresh


@pytest.fixture(scope="module")
def of_one_rank(folder: Path) -> Probe:
    with live(folder, LiveOptions(ranks=1, poison=False)) as service:
        return probe(service)


def test_the_probe_uses_every_kind_of_state(of_one_rank: Probe) -> None:
    """Chunks that continue, and decodes over a page's edge; else it would prove little."""
    rows = [row for step in of_one_rank.rows for row in step]
    assert sum(1 for start, count in rows if count > 1) >= 2
    assert any(start > 0 and count > 1 for start, count in rows)
    assert any(start % 4 == 0 and count == 1 for start, count in rows)


def test_fresh_processes_agree(folder: Path, of_one_rank: Probe) -> None:
    """Whatever else is in their memory."""
    with live(folder, LiveOptions(ranks=1)) as service:
        assert probe(service) == of_one_rank


@pytest.mark.parametrize(
    ("mutation", "poison"),
    mostly_exhaustive(MUTANTS, lambda mutant: mutant == ("stale_recurrent", False)),
)
def test_a_worker_that_keeps_state_is_noticed(
    folder: Path, of_one_rank: Probe, mutation: str, poison: bool
) -> None:
    worker = Worker(mutant_worker.__name__, ("--mutation", mutation))
    with live(folder, LiveOptions(ranks=1, poison=poison, worker=worker)) as service:
        assert notices(service, of_one_rank)


def test_one_rank_that_keeps_state_is_noticed(folder: Path) -> None:
    worker = Worker(mutant_worker.__name__, ("--mutation", "stale_on_rank_1"))
    with live(folder, LiveOptions(poison=False, worker=worker)) as service:
        assert notices(service, probe(service))


def notices(service: Live, expected: Probe) -> bool:
    """Does any scene show that something is wrong?"""
    for scene in SCENES.values():
        try:
            scene(service)
            service.demand_idle()
            if probe(service) != expected:
                return True
        except (AssertionError, PeerError):
            return True
    return False
