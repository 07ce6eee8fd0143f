"""The flag between threads."""

from __future__ import annotations

import time

from coordinator.wake import Wake
from wire.socket_pipe import wait_readable


def test_set_is_seen_until_cleared() -> None:
    wake = Wake()
    assert wait_readable([wake], 0.0) == []
    wake.set()
    wake.set()
    assert wait_readable([wake], time.monotonic() + 9) == [0]
    wake.clear()
    assert wait_readable([wake], 0.0) == []
    wake.clear()
    wake.close()


def test_set_after_close_does_nothing() -> None:
    wake = Wake()
    wake.close()
    wake.close()
    wake.set()
