"""`bench ab` on a model of two layers, over real processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.gates.live import MACHINE, REAL_WORKER, gate_model
from coordinator.model_run import ModelBindings
from errors import ConfigError
from tools.bench.ab import BASELINE, CONFIGURATIONS, AbOptions, check, compare, order
from tools.bench.ab_report import render
from tools.bench.ab_traffic import Traffic

TRAFFIC = Traffic(prompt=4, tokens=4, batch=3, long=24, chunk=6, repeats=1)


def test_every_configuration_is_measured_and_overlaps(tmp_path: Path) -> None:
    options = AbOptions(str(gate_model(tmp_path)), "two layers", TRAFFIC, rounds=1)
    found = compare(options, ModelBindings(REAL_WORKER.launcher, lambda: MACHINE))
    assert found.rounds.keys() == CONFIGURATIONS.keys()
    for name, (_, ranks) in CONFIGURATIONS.items():
        (only,) = found.rounds[name]
        assert len(only.ranks) == ranks
        assert only.mixed.mixed.mixed_steps >= 2
        assert only.mixed.mixed.tokens_meanwhile >= 2
        assert (only.mixed.control.chunks, only.mixed.control.mixed_steps) == (4, 0)
        assert only.mixed.control.tokens_meanwhile == only.mixed.control_steps == 0
        assert all(values and min(values) > 0 for values in only.values.values())
        assert all(rank.peak_rss > rank.weights + rank.state for rank in only.ranks)
    replicated, sharded, whole = (found.rounds[name][0].ranks[0] for name in CONFIGURATIONS)
    # Replicated linear attention holds a request's whole recurrent and convolution state.
    assert sharded.slot * 2 == replicated.slot == whole.slot
    assert sharded.weights < replicated.weights < whole.weights
    assert BASELINE in render(found)


def test_each_configuration_goes_first_second_and_last_as_often() -> None:
    places = [[order(number).index(name) for number in range(6)] for name in CONFIGURATIONS]
    assert all(sorted(place) == [0, 0, 1, 1, 2, 2] for place in places)


@pytest.mark.parametrize(
    "traffic",
    [
        replace(TRAFFIC, prompt=1),
        replace(TRAFFIC, tokens=1),
        replace(TRAFFIC, batch=1),
        replace(TRAFFIC, chunk=3),
        replace(TRAFFIC, long=11),
        replace(TRAFFIC, repeats=0),
    ],
)
def test_traffic_that_can_show_nothing_is_refused(traffic: Traffic) -> None:
    with pytest.raises(ConfigError):
        check(traffic, rounds=1)


def test_no_rounds_are_refused() -> None:
    with pytest.raises(ConfigError):
        check(TRAFFIC, rounds=0)
