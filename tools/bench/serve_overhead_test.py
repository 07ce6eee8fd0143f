"""Shares from steps that are known; steps that are not full decode steps are left out."""

from __future__ import annotations

import json

import pytest

from program.plan import Row, StepPlan
from tools.bench.serve_overhead import (
    Overhead,
    Paces,
    Turn,
    Wave,
    paces_of_engine,
    paces_of_server,
    render,
    to_json,
)
from tools.bench.turned_engine import StepRecord


def step(
    number: int, at: float, duration: int, rows: int = 2, prefill: int = 0
) -> dict[str, object]:
    return {
        "step": number,
        "at_s": at,
        "duration_us": duration,
        "decode_rows": rows,
        "prefill_tokens": prefill,
        "ranks": [{"compute_us": duration - 4_000}, {"compute_us": duration - 1_000}],
    }


def test_paces_of_a_server() -> None:
    steps = [
        step(4, 0.9, 9_000, prefill=8),
        step(5, 1.0, 9_000),
        step(6, 1.010, 8_000),
        step(7, 1.030, 9_000, rows=1),
        step(9, 1.040, 9_000),
    ]
    found = paces_of_server(steps, batch=2)
    assert found.periods == pytest.approx([10])
    assert found.steps == pytest.approx([9])
    assert found.between == pytest.approx(0.1)
    # The slower rank computed 8 of the 10 ms.
    assert found.outside == pytest.approx(0.2)


def test_paces_of_an_engine() -> None:
    def record(number: int, started: float, rows: int, tokens: int = 1) -> StepRecord:
        held = tuple(Row(i, i, 3, (1,) * tokens) for i in range(rows))
        return StepRecord(StepPlan(number, rows=held), (), started, started + 0.008, 0.0)

    steps = [record(0, 0.0, 2, 3), record(1, 1.0, 2), record(2, 1.01, 2), record(3, 1.03, 1)]
    found = paces_of_engine(steps, batch=2)
    assert found.periods == pytest.approx([10])
    assert found.steps == pytest.approx([8])


def wave(period: float, processor: float) -> Wave:
    return Wave(Paces([period, period], [period * 0.75] * 2, [period / 2]), processor)


def test_shares_are_taken_turn_by_turn() -> None:
    # Ten times slower in the second turn: the shares stay.
    turns = [
        Turn(wave(10, 3), wave(9, 2.5), wave(7, 2)),
        Turn(wave(100, 30), wave(90, 25), wave(70, 20)),
    ]
    found = Overhead(2, turns)
    shares = found.shares()
    wanted = {"HTTP": 0.1, "observation": 0.2, "all": 0.3}
    wanted |= {f"{name}, fast tenths": share for name, share in wanted.items()}
    wanted |= {"processor": 0.1, "between steps, with HTTP": 0.25, "between steps, bare": 0.25}
    wanted |= {"outside ranks, with HTTP": 0.5, "HTTP and scheduler": 1 - 0.75 * 0.9}
    assert shares.keys() == wanted.keys()
    for name, share in wanted.items():
        assert (shares[name].p10, shares[name].p90) == pytest.approx((share, share))
    assert "| HTTP | 10.0% | 10.0% | 10.0% |" in render(found).splitlines()
    assert json.loads(json.dumps(to_json(found), allow_nan=False))["batch"] == 2
