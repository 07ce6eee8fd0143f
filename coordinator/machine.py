"""What this machine offers to ranks now: memory, and the processors this process may run on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from coordinator.model_setup import Machine
from errors import ConfigError

# The rest is left to the system and to this process.
_SHARE_OF_MEMORY: Final = 0.8
_MEMORY: Final = Path("/proc/meminfo")
# Limit and use of this process's control group, in both versions of the interface.
_GROUPS: Final = (
    (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")),
    (
        Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
        Path("/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ),
)


def visible_machine() -> Machine:
    """Raises ConfigError where the system does not say how much memory there is."""
    free = available_bytes(_MEMORY, _GROUPS)
    return Machine(int(free * _SHARE_OF_MEMORY), frozenset(os.sched_getaffinity(0)))


def available_bytes(memory: Path, groups: Iterable[tuple[Path, Path]]) -> int:
    """What can be had without swapping: MemAvailable, or less where a control group allows less.

    MemAvailable counts what file caches would give back, which after a look at a large checkpoint
    is most of the memory.
    """
    lines = _text(memory).splitlines()
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    if not found or not found[0].isdigit():
        rule = "must have a line MemAvailable; else give --rank-memory-bytes"
        raise ConfigError.single("memory", memory, rule)
    free = int(found[0]) * 1024
    for limit, use in groups:
        most, used = _text(limit).strip(), _text(use).strip()
        if most.isdigit() and used.isdigit():
            free = min(free, max(0, int(most) - int(used)))
    return free


def _text(path: Path) -> str:
    """Empty where there is none."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
