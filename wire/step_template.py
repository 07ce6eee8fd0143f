"""Metadata that differs from step to step in its step number only, encoded once.

A steady step would otherwise spend more on JSON than on its sums.
"""

from __future__ import annotations

from typing import Final

from errors import MisuseError

# Inside a string a quote is escaped, so these bytes can only be the key itself.
_KEY: Final = b'"step":'
_ZERO: Final = _KEY + b"0"


class StepTemplate:
    """metadata: canonical, with step 0, and no other key `step` anywhere in it."""

    def __init__(self, metadata: bytes) -> None:
        parts = metadata.split(_ZERO)
        if len(parts) != 2 or metadata.count(_KEY) != 1:
            raise MisuseError("a step template needs exactly one step, and that 0")
        self._head, self._tail = parts[0] + _KEY, parts[1]

    def at(self, step: int) -> bytes:
        """The canonical metadata of that step."""
        return b"%b%d%b" % (self._head, step, self._tail)
