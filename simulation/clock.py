"""Virtual time: it moves only when somebody waits, and then at once to what was waited for."""

from __future__ import annotations


class VirtualClock:
    """Monotonic seconds from 0."""

    def __init__(self) -> None:
        self._now = 0.0

    def now(self) -> float:
        return self._now

    def advance_to(self, deadline: float) -> None:
        """Time never goes back."""
        self._now = max(self._now, deadline)
