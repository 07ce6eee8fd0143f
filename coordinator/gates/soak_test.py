"""A short soak over real processes; soak_long_test is the same for 500 requests."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from coordinator.gates import soak as soak_module
from coordinator.gates.live import Live, LiveOptions, Request, Worker, gate_model, live
from coordinator.gates.soak import resources, soak
from coordinator.process_table import children, open_descriptors
from coordinator.request import Outcome, RequestEvent
from errors import PeerError
from simulation import mutant_worker

REQUESTS = int(os.environ.get("SOAK_REQUESTS", "60"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return gate_model(tmp_path_factory.mktemp("model"))


def test_soak(folder: Path) -> None:
    before = open_descriptors()
    with live(folder, LiveOptions(pages=20)) as service:
        ends = soak(service, REQUESTS, seed=1)
        assert len(resources(service).processes) == 2
    assert sum(ends.values()) == REQUESTS
    assert set(ends) == set(Outcome) - {Outcome.FAILED}
    assert open_descriptors() == before
    assert children() == set()


@pytest.mark.parametrize("mutation", ["stale_recurrent", "forgets_after_a_while"])
def test_a_leak_of_state_is_noticed(folder: Path, mutation: str) -> None:
    worker = Worker(mutant_worker.__name__, ("--mutation", mutation))
    options = LiveOptions(ranks=1, pages=20, poison=False, worker=worker)
    with live(folder, options) as service, pytest.raises((AssertionError, PeerError)):
        soak(service, 30, seed=1)


def test_a_descriptor_that_stays_open_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    submit = soak_module._submit

    def leaking(service: Live, random: Random) -> Request:
        opened.append(os.dup(0))
        return submit(service, random)

    monkeypatch.setattr(soak_module, "_submit", leaking)
    try:
        with live(folder, LiveOptions(ranks=1)) as service, pytest.raises(AssertionError):
            soak(service, 2, seed=1)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def test_a_request_that_stays_is_noticed(folder: Path) -> None:
    with live(folder, LiveOptions(ranks=1)) as service:
        request = service.submit([1, 2], 40)
        service.turns(2)
        with pytest.raises(AssertionError):
            service.demand_idle()
        service.end(request, RequestEvent.CANCEL)
        service.finish()
        service.demand_idle()
