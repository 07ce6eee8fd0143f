"""How far the ranks' loads are, for a person at a terminal.

A loading rank says nothing until it is done, so its resident size, as the kernel counts it, is
shown beside what it will hold in the end. Nothing depends on what is shown here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

from coordinator.model_setup import ModelSetup
from coordinator.terminal import count

_REFRESH_S: Final = 0.2
_MIB: Final = 1 << 20
# Back to the beginning of the line, and everything after it cleared.
_CLEARED: Final = "\r\x1b[K"


def bytes_due(setup: ModelSetup, rank: int) -> int:
    """What the rank holds once it has loaded: weights and state."""
    return setup.capacity.ranks[rank].weight_bytes + setup.capacity.state_bytes(rank)


def progress_line(resident: Mapping[int, int], due: Mapping[int, int]) -> str:
    """Both in bytes, by rank. A rank that nothing is known of is left out."""
    parts = [
        f"rank {rank} {count(resident[rank] // _MIB)} of {count(due[rank] // _MIB)} MiB"
        for rank in sorted(due)
        if rank in resident
    ]
    return "loading: " + ", ".join(parts)


def resident_bytes(pid: int) -> int | None:
    """Resident size of a process; None when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except OSError:
        return None
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def load_progress(terminal: TextIO, setup: ModelSetup, pids: Mapping[int, int]) -> Iterator[None]:
    """Keeps one line on `terminal` up to date while it is entered; the line is gone afterwards."""
    due = {rank: bytes_due(setup, rank) for rank in pids}
    done = threading.Event()

    def show() -> None:
        while not done.wait(_REFRESH_S):
            found = {rank: resident_bytes(pid) for rank, pid in pids.items()}
            known = {rank: size for rank, size in found.items() if size is not None}
            terminal.write(_CLEARED + progress_line(known, due))
            terminal.flush()

    thread = threading.Thread(target=show, name="load-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        terminal.write(_CLEARED)
        terminal.flush()
