"""When two answers of the same request count as the same, although the steps were others.

In steps of many rows, other rows change the order in which BLAS adds, so bits are due only between
runs of equal plans. Between others: the same greedy tokens as long as the best two are further
apart than float32 noise can turn, and log-probabilities within LOGPROB_TOLERANCE.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from coordinator.request import Token

# Measured between schedules of the golden shapes: up to 1.8e-5. The smallest planted mistake
# moves it a hundred times further.
LOGPROB_TOLERANCE: Final = 2e-4
# Closer than this, two runs may choose differently and are then other requests.
GAP: Final = 1e-3


def gap(token: Token) -> float:
    """Between the two most likely tokens; the request must ask for two alternatives or more."""
    return token.top[0].logprob - token.top[1].logprob


def demand_same(found: Sequence[Token], expected: Sequence[Token]) -> int:
    """Raises AssertionError; returns how many tokens were compared."""
    compared = 0
    for one, other in zip(found, expected, strict=True):
        if gap(one) < GAP or gap(other) < GAP:
            break
        if one.token_id != other.token_id:
            raise AssertionError(f"token {compared}: {one.token_id}, expected {other.token_id}")
        pairs = [(one.logprob, other.logprob)]
        known = {entry.token_id: entry.logprob for entry in other.top}
        pairs += [(entry.logprob, known.get(entry.token_id)) for entry in one.top]
        for new, old in pairs:
            # The last alternatives may change places where they are nearly equal.
            if new is not None and old is not None and abs(new - old) > LOGPROB_TOLERANCE:
                raise AssertionError(f"token {compared}: log-probability {new}, expected {old}")
        compared += 1
    return compared
