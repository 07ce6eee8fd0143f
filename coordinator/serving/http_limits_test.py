"""A process has room for the connections it promises, or does not start."""

from __future__ import annotations

import resource

import pytest

from coordinator.serving.http_limits import CONNECTIONS_DEFAULT, connections_allowed
from errors import ConfigError


@pytest.fixture(name="descriptors")
def _descriptors(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    given = [1024]
    monkeypatch.setattr(resource, "getrlimit", lambda which: (given[0], 1 << 20))
    return given


@pytest.mark.parametrize(
    ("soft", "wanted", "allowed"),
    [(1024, None, CONNECTIONS_DEFAULT), (1024, 7, 7), (213, None, 101), (113, None, 1)],
)
def test_as_many_as_wanted_or_possible(
    descriptors: list[int], soft: int, wanted: int | None, allowed: int
) -> None:
    descriptors[0] = soft
    assert connections_allowed(wanted) == allowed


@pytest.mark.parametrize(
    ("soft", "wanted", "field"),
    [
        (112, None, "RLIMIT_NOFILE"),
        (64, 1, "RLIMIT_NOFILE"),
        (1024, 913, "--max-connections"),
        (113, 2, "--max-connections"),
    ],
)
def test_too_few_descriptors_are_refused(
    descriptors: list[int], soft: int, wanted: int | None, field: str
) -> None:
    descriptors[0] = soft
    with pytest.raises(ConfigError) as refused:
        connections_allowed(wanted)
    assert [problem.field for problem in refused.value.problems] == [field]


def test_no_bound_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda which: unlimited)
    assert connections_allowed(None) == CONNECTIONS_DEFAULT
    assert connections_allowed(4096) == 4096
