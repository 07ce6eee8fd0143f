"""What the health pages say of every phase, and which reason is the first."""

from __future__ import annotations

import json
from dataclasses import replace
from errno import ECONNRESET

import pytest

from coordinator.engine import Failure
from coordinator.serving.health import answer, first_reason, live, ready, started
from coordinator.serving.served import Phase, RankLoad, RankPhase, Status
from errors import ProtocolError

NOW = 100.0
RANK = RankLoad(0, 4711, RankPhase.READY, 20, 20, 30, 99.0)
SERVING = Status(
    phase=Phase.SERVING,
    epoch=7,
    ranks=(RANK, replace(RANK, rank=1, pid=4712)),
    snapshot=None,
    failure=None,
    progress_at=98.5,
    restarts=2,
)
GONE = ProtocolError("closed", "the stream ended", rank=1, phase="mlp", errno=ECONNRESET)
FAILURE = Failure(GONE, 12)


def test_ready() -> None:
    assert ready(SERVING, NOW) == {
        "ok": True,
        "phase": "serving",
        "epoch": 7,
        "restarts": 2,
        "progress_age_s": 1.5,
        "reason": None,
        "ranks_connected": 2,
        "world_size": 2,
        "ranks": [
            {"rank": 0, "pid": 4711, "phase": "ready", "last_seen_age_s": 1.0},
            {"rank": 1, "pid": 4712, "phase": "ready", "last_seen_age_s": 1.0},
        ],
    }


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.SERVING])
def test_no_other_phase_is_ready(phase: Phase) -> None:
    page = ready(replace(SERVING, phase=phase), NOW)
    assert page["ok"] is False
    assert page["reason"] == {
        "code": f"service.{phase.value}",
        "message": f"the service is {phase.value}",
        "rank": None,
        "phase": None,
        "errno": None,
        "errno_name": None,
        "step": None,
    }


@pytest.mark.parametrize("phase", Phase)
def test_a_failure_is_the_first_reason(phase: Phase) -> None:
    """Also in the moment in which the phase has not moved yet, and while it starts again."""
    failed = replace(SERVING, phase=phase, failure=FAILURE)
    assert first_reason(failed) == {
        "code": "protocol.closed",
        "message": "the stream ended",
        "rank": 1,
        "phase": "mlp",
        "errno": ECONNRESET,
        "errno_name": "ECONNRESET",
        "step": 12,
    }


@pytest.mark.parametrize("phase", [phase for phase in RankPhase if phase is not RankPhase.READY])
def test_a_rank_that_is_not_there(phase: RankPhase) -> None:
    ranks = (RANK, replace(RANK, rank=1, phase=phase))
    page = ready(replace(SERVING, ranks=ranks), NOW)
    assert (page["ok"], page["ranks_connected"]) == (False, 1)
    reason = page["reason"]
    assert isinstance(reason, dict)
    assert (reason["code"], reason["rank"]) == (f"rank.{phase.value}", 1)


@pytest.mark.parametrize("phase", Phase)
def test_live_until_the_end(phase: Phase) -> None:
    page = live(replace(SERVING, phase=phase, failure=FAILURE), NOW)
    assert page["ok"] is (phase is not Phase.ENDED)


def test_started_shows_the_load() -> None:
    half = replace(RANK, phase=RankPhase.LOADING, bytes_loaded=10, last_seen=None)
    page = started(replace(SERVING, phase=Phase.LOADING, ranks=(half,)), NOW, has_served=False)
    assert page["ok"] is False
    assert page["ranks"] == [
        {
            "rank": 0,
            "pid": 4711,
            "phase": "loading",
            "last_seen_age_s": None,
            "bytes_loaded": 10,
            "bytes_due": 20,
        }
    ]
    assert started(SERVING, NOW, has_served=True)["ok"] is True
    # What happens later is no matter of the start.
    assert started(replace(SERVING, phase=Phase.FAILED), NOW, has_served=True)["ok"] is True


def test_status_codes() -> None:
    good, bad = answer({"ok": True}), answer({"ok": False, "reason": None})
    assert (good.status_code, bad.status_code) == (200, 503)
    assert "retry-after" in bad.headers
    assert "retry-after" not in good.headers
    assert json.loads(bytes(bad.body)) == {"ok": False, "reason": None}
