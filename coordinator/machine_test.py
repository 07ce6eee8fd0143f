from __future__ import annotations

import os
from pathlib import Path

import pytest

from coordinator.machine import available_bytes, visible_machine
from errors import ConfigError

GIB = 1 << 30


def memory(folder: Path, kib: str = str(4 << 20)) -> Path:
    path = folder / "meminfo"
    path.write_text(f"MemTotal:  99 kB\nMemFree:  1 kB\nMemAvailable:   {kib} kB\n")
    return path


def group(folder: Path, limit: str, used: str) -> tuple[Path, Path]:
    (folder / "limit").write_text(limit + "\n")
    (folder / "used").write_text(used + "\n")
    return folder / "limit", folder / "used"


def test_without_a_control_group_all_that_is_available_counts(tmp_path: Path) -> None:
    absent = (tmp_path / "no limit", tmp_path / "no use")
    assert available_bytes(memory(tmp_path), [absent]) == 4 * GIB


@pytest.mark.parametrize(
    ("limit", "used", "left"),
    [
        ("max", str(GIB), 4 * GIB),
        (str(3 * GIB), str(GIB), 2 * GIB),
        (str(64 * GIB), str(GIB), 4 * GIB),
        (str(GIB), str(2 * GIB), 0),
    ],
)
def test_a_control_group_may_allow_less(tmp_path: Path, limit: str, used: str, left: int) -> None:
    assert available_bytes(memory(tmp_path), [group(tmp_path, limit, used)]) == left


@pytest.mark.parametrize("kib", ["", "many"])
def test_a_system_that_does_not_say(tmp_path: Path, kib: str) -> None:
    path = memory(tmp_path, kib)
    with pytest.raises(ConfigError):
        available_bytes(path, [])
    with pytest.raises(ConfigError):
        available_bytes(tmp_path / "missing", [])


def test_this_machine() -> None:
    machine = visible_machine()
    assert machine.memory_bytes > 0
    assert machine.processors == os.sched_getaffinity(0)
