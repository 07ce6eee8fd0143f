from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from errors import MisuseError
from model.crew import SOLO, Crew

CREWS = [SOLO, Crew(2), Crew(3)]


@given(crew=st.sampled_from(CREWS), extent=st.integers(0, 100), unit=st.sampled_from([1, 8, 32]))
def test_parts_cover_the_range_once_and_meet_at_multiples_of_the_unit(
    crew: Crew, extent: int, unit: int
) -> None:
    parts: list[tuple[int, int]] = []
    crew.share(lambda start, stop: parts.append((start, stop)), extent, unit)
    assert sorted(index for start, stop in parts for index in range(start, stop)) == list(
        range(extent)
    )
    assert len(parts) <= crew.threads
    assert all(start % unit == 0 for start, stop in parts)


def test_parts_run_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=60)
    Crew(3).share(lambda start, stop: void(meeting.wait()), 3)


def void(value: object) -> None:
    """Drops what a callback returns."""


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_is_raised_after_every_part_has_ended(failing: int) -> None:
    ended = []

    def work(start: int, stop: int) -> None:
        ended.append(start)
        if start == failing:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Crew(3).share(work, 3)
    assert sorted(ended) == [0, 1, 2]


def test_a_crew_has_at_least_one_thread() -> None:
    with pytest.raises(MisuseError):
        Crew(0)
