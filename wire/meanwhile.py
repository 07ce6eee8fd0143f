"""Tests: something that happens while the test waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_JOIN_S: Final = 20.0


@contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Run `action` in a thread, and do not leave before it has ended."""
    thread = threading.Thread(target=action)
    thread.start()
    try:
        yield
    finally:
        thread.join(_JOIN_S)
        if thread.is_alive():
            raise AssertionError(f"the action did not end within {_JOIN_S} s")
