"""Loads ask what they should, as often and when they should, and every request is reported."""

from __future__ import annotations

import asyncio
import statistics
from dataclasses import replace

import pytest

from errors import TPError
from tools.bench.serve import LOADS, Loaded, run_loads
from tools.bench.serve_client import DONE, LEFT
from tools.bench.serve_fake import ASKING, Fake
from tools.bench.serve_loads import CHAT, Asking, poisson_gaps
from tools.bench.serve_report import render, report_of


def run(fake: Fake, *names: str, asking: Asking = ASKING) -> Loaded:
    async def served() -> Loaded:
        async with fake.running() as endpoint:
            return await run_loads(endpoint, asking, names)

    return asyncio.run(served())


def test_every_load_sends_all_its_requests() -> None:
    fake = Fake()
    loaded = run(fake, *LOADS)
    for report in loaded.reports:
        assert report.sent == 12
        assert sum(report.ends.values()) == 12
        assert report.errors == 0
        assert (report.probe_end, report.left_over) == (DONE, 0)
    # A warm-up, the loads, and a probe after each.
    assert len(fake.requests) >= 1 + 5 * 13 - loaded.reports[-1].ends[LEFT]
    assert {body["model"] for body in fake.requests} == {"fake"}
    text = render(loaded.reports)
    assert all(name in text for name in LOADS)


def test_a_closed_load_keeps_its_clients_busy_and_no_more() -> None:
    fake = Fake(gap_s=0.002)
    (report,) = run(fake, "closed").reports
    assert report.ends == {DONE: 12}
    assert report.completion_tokens == 48
    assert fake.peak <= ASKING.clients
    assert len({str(body["prompt"]) for body in fake.requests[1:13]}) == 12
    assert all(len(list(str(body["prompt"]).split(","))) == 3 for body in fake.requests)


def test_a_mixed_load_has_long_prompts() -> None:
    fake = Fake()
    (report,) = run(fake, "mixed").reports
    lengths = [len(str(body["prompt"]).split(",")) for body in fake.requests[1:13]]
    assert sorted(lengths) == [3] * 9 + [9] * 3
    assert {kind for kind, _ in report.milliseconds} == {"short", "long"}


def test_a_conversation_carries_what_was_said() -> None:
    fake = Fake()
    (report,) = run(fake, "turns", asking=replace(ASKING, clients=1, requests=3)).reports
    chats = [body for path, body in zip(fake.paths, fake.requests, strict=True) if path == CHAT]
    assert [len(list(str(body["messages"]).split("role"))) - 1 for body in chats] == [1, 3, 5]
    assert "t0t1t2t3" in str(chats[1]["messages"])
    assert report.ends == {DONE: 3}


def test_an_open_load_does_not_wait() -> None:
    """Arrivals do not wait for answers: more are on their way than a closed load has clients."""
    fake = Fake(gap_s=0.05)
    (report,) = run(fake, "open").reports
    assert report.ends == {DONE: 12}
    assert fake.peak > ASKING.clients


def test_what_a_server_still_holds_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.bench.serve._SETTLE_S", 0.0)
    (report,) = run(Fake(stuck=2), "storm").reports
    assert report.left_over == 2


def test_poisson_gaps() -> None:
    gaps = poisson_gaps(10.0, 20_000, seed=3)
    assert gaps == poisson_gaps(10.0, 20_000, seed=3)
    assert gaps != poisson_gaps(10.0, 20_000, seed=4)
    assert statistics.mean(gaps) == pytest.approx(0.1, rel=0.03)
    # Of an exponential distribution the deviation is the mean.
    assert statistics.stdev(gaps) == pytest.approx(0.1, rel=0.03)


def test_errors_are_counted_by_their_code() -> None:
    (report,) = run(Fake(refuse_every=3, cut_every=4), "closed").reports
    assert report.errors == 12 - report.ends[DONE] > 0
    assert report.ends["refused 429 overload.queue"] == 4
    assert "x refused 429 overload.queue" in render([report])


def test_a_lost_request_is_no_result() -> None:
    with pytest.raises(TPError) as caught:
        report_of("closed", 1, [], DONE, None)
    assert caught.value.code == "bench.lost"
