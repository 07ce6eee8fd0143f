"""Two tiers of tests: what every run has, and what only an exhaustive one has (docs/adr/0057).

A test of the exhaustive tier has the marker `exhaustive`; its target says `exhaustive = True`
(py.bzl), so that each tier has a target that runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

Case = TypeVar("Case")


def mostly_exhaustive(
    cases: Iterable[Case], always: Callable[[Case], bool], *, unpack: bool = True
) -> list[Any]:
    """What parametrize takes: the cases for which `always` is false have the marker.

    A tuple is one value for each of several arguments, unless `unpack` is false.
    Raises ValueError where all cases are of one tier: then it is no choice.
    """
    listed = [(case, bool(always(case))) for case in cases]
    if {chosen for _, chosen in listed} != {False, True}:
        raise ValueError("the same tier for every case")
    return [
        pytest.param(
            *(case if unpack and isinstance(case, tuple) else (case,)),
            marks=() if chosen else pytest.mark.exhaustive,
        )
        for case, chosen in listed
    ]
