"""Device ordinals are refused before anything starts, or give each rank one visible processor."""

from __future__ import annotations

import pytest

from coordinator.devices import bind_ranks
from errors import ConfigError


def test_no_ordinals_bind_nobody() -> None:
    assert bind_ranks((), {0, 1}, 2) == ((), ())


def test_ordinals_count_visible_processors_in_rising_order() -> None:
    assert bind_ranks((1, 0), {7, 3}, 2) == ((7,), (3,))


@pytest.mark.parametrize(
    ("ordinals", "visible", "world_size", "refused"),
    [
        ((0,), {0, 1}, 2, ["0"]),
        ((0, 0), {0, 1}, 2, ["0"]),
        ((0, 2), {0, 1}, 2, ["2"]),
        ((0, 16), set(range(32)), 2, ["16"]),
        ((-1, 0), {0, 1}, 2, ["-1"]),
        ((5, 5, 9), {0}, 2, ["5,5,9", "5", "9"]),
    ],
)
def test_refusals_name_each_ordinal(
    ordinals: tuple[int, ...], visible: set[int], world_size: int, refused: list[str]
) -> None:
    with pytest.raises(ConfigError) as refusal:
        bind_ranks(ordinals, visible, world_size)
    assert refusal.value.code == "config.devices"
    assert [problem.value for problem in refusal.value.problems] == refused
