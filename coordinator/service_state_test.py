"""The page of `state`."""

from __future__ import annotations

from dataclasses import replace
from errno import ECONNRESET

from coordinator.engine import Failure
from coordinator.fake_snapshot import SNAPSHOT, TABLE
from coordinator.service_state import render_state, state_json
from errors import DeadlineError, ProtocolError


def test_the_object() -> None:
    state = state_json(SNAPSHOT)
    assert state["slots"] == [
        {
            "computed_tokens": 0,
            "generation": 1,
            "pages": [[0, 2], [3, 1]],
            "prompt_tokens": 5,
            "request_id": 7,
            "tokens_max": 12,
        },
        None,
    ]
    assert (state["pages_free"], state["in_flight"], state["steps"]) == (6, 1, 1)
    assert state["state_digest"] == TABLE.digest()
    assert state["ranks"] == [
        {
            "hidden_digest": "b" * 64,
            "load": {"bytes_held": 10, "state_bytes": 20},
            "pid": 4711,
            "rank": 0,
            "state_digest": "a" * 64,
        }
    ]


def test_the_page() -> None:
    page = render_state(state_json(SNAPSHOT))
    assert page == (
        "condition  serving\n"
        "steps      1 complete, step 1 running\n"
        "requests   1 running, 1 waiting\n"
        "slots      1 of 2 held\n"
        "pages      3 of 9 held, 4 tokens each\n"
        "  slot 0: request 7, generation 1, 0 of 12 tokens, pages [[0, 2], [3, 1]]\n"
        "  rank 0: pid 4711, weights 10 bytes, state 20 bytes, state digest aaaaaaaaaaaaaaaa\n"
    )


def test_its_first_line_is_the_condition() -> None:
    stopping = replace(SNAPSHOT, stopping=True)
    assert render_state(state_json(stopping)).startswith("condition  stopping\n")
    cause = DeadlineError("receive", "nothing came", rank=1, phase="plan")
    failed = replace(stopping, failure=Failure(cause, 3))
    first = render_state(state_json(failed)).splitlines()[0]
    assert (
        first == "condition  failed in step 3: rank 1, phase plan: deadline.receive: nothing came"
    )
    broken = ProtocolError("closed", "it ended", rank=1, phase="plan", errno=ECONNRESET)
    state = state_json(replace(stopping, failure=Failure(broken, 3)))
    first = render_state(state).splitlines()[0]
    assert first.endswith(f"protocol.closed: it ended (ECONNRESET, errno {ECONNRESET})")
    assert state["failure"] == {
        "cause": {
            "code": "protocol.closed",
            "message": "it ended",
            "rank": 1,
            "phase": "plan",
            "errno": ECONNRESET,
            "errno_name": "ECONNRESET",
        },
        "step": 3,
    }
    idle = replace(stopping, failure=Failure(cause, None))
    assert "failed between steps" in render_state(state_json(idle))
