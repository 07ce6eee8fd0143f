"""What lasts is left alone; what does not is collected, also when it was once taken for lasting."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from coordinator.serving.garbage import YOUNG_MAX, settle


class Node:
    """Part of a cycle."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    threshold = gc.get_threshold()
    yield
    gc.set_threshold(*threshold)
    gc.unfreeze()


def test_what_exists_is_not_looked_at_again() -> None:
    settle()
    frozen = gc.get_freeze_count()
    assert frozen > 1000
    assert gc.get_threshold()[0] == YOUNG_MAX
    settle()
    assert abs(gc.get_freeze_count() - frozen) < 1000


def test_later_garbage_is_collected() -> None:
    settle()
    gone = weakref.ref(Node())
    gc.collect()
    assert gone() is None


def test_what_no_longer_lasts_is_collected_at_the_next_load() -> None:
    node = Node()
    gone = weakref.ref(node)
    settle()
    del node
    gc.collect()
    assert gone() is not None
    settle()
    assert gone() is None
