"""Shares from turns that are known."""

from __future__ import annotations

import json

import pytest

from tools.bench.serve_overhead import Overhead, Pace, Turn, Way, render, to_json


def turn(period: float, step: float) -> Turn:
    return Turn(Pace([period] * 3, [step] * 3), 1000.0, 200.0, 30.0)


def round_of(slower: float) -> dict[Way, Turn]:
    """slower: ms that whatever else ran added to each of the three."""
    return {
        Way.ENGINE: turn(10.5 + slower, 10.0 + slower),
        Way.HTTP: turn(11.0 + slower, 10.4 + slower),
        Way.STREAMED: turn(12.0 + slower, 11.4 + slower),
    }


def test_shares_are_differences_within_a_round() -> None:
    found = Overhead(8, [round_of(slower) for slower in (0.0, 0.0, 0.0, 0.0, 7.0, 0.0)])
    assert found.step == 10.0
    shares = found.shares()
    wanted = {
        "scheduler": 0.05,
        "HTTP": 0.05,
        "HTTP and scheduler": 0.1,
        "HTTP, clients here": 0.15,
        "HTTP and scheduler, clients here": 0.2,
    }
    assert shares.keys() == wanted.keys()
    for name, share in wanted.items():
        found_share = shares[name]
        assert (found_share.estimate, found_share.low, found_share.high) == pytest.approx(
            (share, share, share)
        )


def test_a_round_that_differs_shows_in_the_interval() -> None:
    rounds = [round_of(0.0) for _ in range(5)]
    rounds.append(rounds[0] | {Way.HTTP: turn(14.0, 13.0)})
    share = Overhead(8, rounds).shares()["HTTP"]
    assert (share.estimate, share.low, share.high) == pytest.approx((0.05, 0.05, 0.35))


def test_told() -> None:
    found = Overhead(8, [round_of(0.0)] * 2)
    lines = render(found).splitlines()
    assert "| HTTP and scheduler | 10.0% | 10.0% | 10.0% |" in lines
    assert any(line.startswith("| engine alone | 10.500 (10.500 to 10.500) |") for line in lines)
    told = json.loads(json.dumps(to_json(found), allow_nan=False))
    assert told["rounds"][1]["streamed"]["pace"]["periods"] == [12.0] * 3
    assert told["shares"]["scheduler"]["estimate"] == pytest.approx(0.05)
