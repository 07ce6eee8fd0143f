"""After every way out, the canary is bit-equal to that of fresh processes, on every rank.

Both programs, one and two ranks, and four where linear attention is sharded. The gate itself is
shown to fail on workers that keep what they should clear.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from coordinator.gates.exits import SCENES
from coordinator.gates.live import Live, LiveOptions, Worker, live
from coordinator.gates.probe import Probe, probe
from errors import PeerError
from simulation import mutant_worker
from testdata.golden.seeded_checkpoint import write_checkpoint
from testdata.golden.shapes import SHAPES

LAYOUTS = [
    ("qwen35/sharded", 1),
    ("qwen35/sharded", 2),
    ("qwen35/sharded", 4),
    ("qwen35/replicated", 1),
    ("qwen35/replicated", 2),
]
# What a worker of simulation/mutant_worker.py does wrong, and whether free memory is NaN then.
MUTANTS = [
    ("stale_recurrent", False),
    ("stale_recurrent", True),
    ("stale_conv", False),
    ("stale_conv", True),
    ("stale_on_rank_1", False),
    ("move_leaves_conv", True),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "base"
    write_checkpoint(path, SHAPES["base"], 1)
    return path


@pytest.fixture(scope="module", params=LAYOUTS, ids=lambda layout: f"{layout[0]}-{layout[1]}")
def options(request: pytest.FixtureRequest) -> LiveOptions:
    program, ranks = request.param
    return LiveOptions(program=program, ranks=ranks)


@pytest.fixture(scope="module")
def fresh(folder: Path, options: LiveOptions) -> Probe:
    """Of processes that have done nothing else."""
    with live(folder, options) as service:
        return probe(service)


@pytest.fixture(scope="module")
def service(folder: Path, options: LiveOptions, fresh: Probe) -> Iterator[Live]:
    with live(folder, options) as running:
        yield running


@pytest.mark.parametrize("name", SCENES)
def test_nothing_is_left_behind(service: Live, fresh: Probe, name: str) -> None:
    SCENES[name](service)
    service.demand_idle()
    assert probe(service) == fresh


def test_the_probe_uses_every_kind_of_state(fresh: Probe) -> None:
    """Chunks that continue, and decodes over a page's edge; else it would prove little."""
    rows = [row for step in fresh.rows for row in step]
    assert sum(1 for start, count in rows if count > 1) >= 2
    assert any(start > 0 and count > 1 for start, count in rows)
    assert any(start % 4 == 0 and count == 1 for start, count in rows)


@pytest.fixture(scope="module")
def of_two_ranks(folder: Path) -> Probe:
    with live(folder, LiveOptions(poison=False)) as service:
        return probe(service)


@pytest.mark.parametrize(("mutation", "poison"), MUTANTS)
def test_a_worker_that_keeps_state_is_noticed(
    folder: Path, of_two_ranks: Probe, mutation: str, poison: bool
) -> None:
    worker = Worker(mutant_worker.__name__, ("--mutation", mutation))
    with live(folder, LiveOptions(poison=poison, worker=worker)) as service:
        assert notices(service, of_two_ranks)


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
