"""Every phase with every event."""

from __future__ import annotations

import itertools

import pytest

from coordinator.serving.phases import TABLE, PhaseEvent, following
from coordinator.serving.served import Phase
from errors import MisuseError

P, E = Phase, PhaseEvent
# Written down a second time, by hand; what is not here can't happen.
EXPECTED: dict[tuple[Phase, PhaseEvent], Phase] = {
    (P.STARTING, E.LOAD): P.LOADING,
    (P.LOADING, E.LOADED): P.SERVING,
    (P.LOADING, E.FAIL): P.FAILED,
    (P.SERVING, E.FAIL): P.FAILED,
    (P.FAILED, E.RESTART): P.RESTARTING,
    (P.RESTARTING, E.LOAD): P.LOADING,
    (P.ENDED, E.STOP): P.ENDED,
    **{(P.STOPPING, event): P.STOPPING for event in E if event is not E.END},
    **{(phase, E.STOP): P.STOPPING for phase in P if phase is not P.ENDED},
    **{(phase, E.END): P.ENDED for phase in P if phase is not P.ENDED},
}


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(Phase, PhaseEvent)))
def test_every_pair(phase: Phase, event: PhaseEvent) -> None:
    expected = EXPECTED.get((phase, event))
    if expected is None:
        with pytest.raises(MisuseError):
            following(phase, event)
    else:
        assert following(phase, event) is expected


def test_every_phase_can_be_reached_and_ends() -> None:
    reached = {P.STARTING}
    for _ in P:
        reached |= {after for phase in reached for after in TABLE[phase].values()}
    assert reached == set(P)
    assert set(TABLE[P.ENDED].values()) == {P.ENDED}
