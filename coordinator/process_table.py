"""What the kernel knows of processes: for tests that prove that nothing is left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

# Far beyond every deadline in the tests, for a machine that is busy with other things.
SLACK_S = 60.0
_POLL_S = 0.01


class ProcessState(NamedTuple):
    """letter: as in proc(5), T stopped, Z a zombie. parent: its process id."""

    letter: str
    parent: int


def process_state(pid: int) -> ProcessState | None:
    """None when there is no such process, reaped zombies included."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    letter, parent = text.rpartition(")")[2].split()[:2]
    return ProcessState(letter, int(parent))


def is_running(pid: int) -> bool:
    """Neither gone nor a zombie that its parent has yet to reap."""
    state = process_state(pid)
    return state is not None and state.letter not in "ZX"


def children(parent: int | None = None) -> set[int]:
    """Children of a process (default: this one), zombies included."""
    wanted = os.getpid() if parent is None else parent
    states = {int(name.name): process_state(int(name.name)) for name in _process_folders()}
    return {pid for pid, state in states.items() if state is not None and state.parent == wanted}


def open_descriptors() -> set[str]:
    """What this process has open, by number and target; the listing's own is left out."""
    folder = Path("/proc/self/fd")
    found = set()
    for link in folder.iterdir():
        try:
            found.add(f"{link.name} {link.readlink()}")
        except FileNotFoundError:
            continue
    return {one for one in found if "/proc/" not in one}


def wait_until(condition: Callable[[], bool], seconds: float = SLACK_S) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _process_folders() -> list[Path]:
    return [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
