"""Logical CPU devices: which processors a rank binds itself to.

Device i is the i-th processor this process may run on, in rising order, from a fixed table of 16.
Pure: what is visible is passed in.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from errors import ConfigError, ConfigProblem

DEVICES_MAX: Final = 16
FIELD: Final = "model.device_ordinals"


def bind_ranks(
    ordinals: Sequence[int], visible: Collection[int], world_size: int
) -> tuple[tuple[int, ...], ...]:
    """The processors of each rank, empty for a rank that is not bound.

    ordinals: the device of each rank, in rank order; empty binds nobody. visible: processors this
    process may run on. Raises ConfigError with every problem: a number of ordinals other than the
    ranks, a repeated one, one beyond the table, one that is not visible.
    """
    if not ordinals:
        return ((),) * world_size
    devices = sorted(visible)[:DEVICES_MAX]
    problems = []
    if len(ordinals) != world_size:
        rule = f"must name one device for each of {world_size} ranks"
        problems.append(ConfigProblem(FIELD, ",".join(map(str, ordinals)), rule))
    for ordinal in sorted(set(ordinals)):
        rule = ""
        if not 0 <= ordinal < DEVICES_MAX:
            rule = f"must be at least 0 and below {DEVICES_MAX}"
        elif ordinal >= len(devices):
            rule = f"must be below {len(devices)}, the devices this process may use"
        elif list(ordinals).count(ordinal) > 1:
            rule = "must belong to one rank only"
        if rule:
            problems.append(ConfigProblem(FIELD, str(ordinal), rule))
    if problems:
        raise ConfigError(problems, "config.devices")
    return tuple((devices[ordinal],) for ordinal in ordinals)
