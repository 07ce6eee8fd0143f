"""What is taken from streams and steps, with times that are known."""

from __future__ import annotations

import pytest

from coordinator.request import Token
from program.plan import Row, StepPlan
from tools.bench.ab_traffic import Traffic, of_requests, of_steps
from tools.bench.turned_engine import StepRecord, Stream


def stream(submitted: float, *times: float) -> Stream:
    found = Stream()
    found.submitted = submitted
    found.tokens = [(at, Token(0, i, i, 7, None, ())) for i, at in enumerate(times)]
    return found


def step(number: int, *positions: int, elapsed: float, tokens: int = 1) -> StepRecord:
    rows = tuple(Row(i, i, start, (1,) * tokens) for i, start in enumerate(positions))
    return StepRecord(StepPlan(number, rows=rows), (), 1.0, 1.0 + elapsed, elapsed / 2)


def test_of_requests() -> None:
    found = of_requests([stream(1.0, 1.5, 1.75, 2.25), stream(1.25, 1.5, 2.0)])
    assert found["TTFT ms"] == pytest.approx([500, 250])
    assert found["ITL ms"] == pytest.approx([250, 500, 500])
    assert found["TPOT ms"] == pytest.approx([375, 500])
    assert found["tokens/s"] == pytest.approx([5 / 1.25])


def test_of_steps_tells_by_position_and_not_by_length() -> None:
    steps = [
        step(0, 0, elapsed=0.5, tokens=4),
        # A last chunk of one token, then a step that decodes and prefills, then a full decode.
        step(1, 4, elapsed=0.25),
        step(2, 5, 0, elapsed=0.125),
        step(3, 6, 5, elapsed=0.0625),
        step(4, 7, elapsed=1.0),
        step(5, elapsed=2.0),
    ]
    found = of_steps(steps, batch=2, prompt=5)
    assert found["prefill ms"] == pytest.approx([875])
    assert found["decode step ms"] == pytest.approx([62.5])
    assert found["decode step processor ms"] == pytest.approx([31.25])


def test_decoders_outlive_the_long_prefill() -> None:
    traffic = Traffic(prompt=4, tokens=2, batch=3, long=60, chunk=8, repeats=1)
    # Two of eight tokens go to decoders, six to the prompt.
    assert traffic.decoder_tokens == 10 + 4
    assert traffic.positions_max == 62
