"""Whether a failed service starts again, and when: a fault that repeats must not be hidden.

Pure: the caller says what time it is. docs/adr/0051-restart-and-linger.md.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

# So many restarts in so many seconds; the failure after them ends the service.
RESTARTS_MAX: Final = 5
WINDOW_S: Final = 600.0
# Before the first restart of a window; doubled for each further one.
FIRST_DELAY_MS: Final = 1_000


class RestartPolicy(Enum):
    """EXIT: whoever supervises the service starts it again. ON_FAILURE: the service does."""

    EXIT = "exit"
    ON_FAILURE = "on-failure"


class Restarts:
    """The restarts of one service. count: all of them."""

    def __init__(self, policy: RestartPolicy) -> None:
        self.count = 0
        self._policy = policy
        self._recent: deque[float] = deque()

    def after_failure(self, now: float) -> float | None:
        """Seconds until the next start, which counts from here on; None when there is none."""
        while self._recent and now - self._recent[0] >= WINDOW_S:
            self._recent.popleft()
        if self._policy is RestartPolicy.EXIT or len(self._recent) >= RESTARTS_MAX:
            return None
        delay_s = FIRST_DELAY_MS / 1000 * float(1 << len(self._recent))
        self._recent.append(now)
        self.count += 1
        return delay_s
