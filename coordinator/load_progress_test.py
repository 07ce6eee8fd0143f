from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest

from coordinator.load_progress import (
    bytes_due,
    load_progress,
    progress_line,
    resident_bytes,
)
from coordinator.model_cases import MACHINE, model_run, small_model
from coordinator.model_command import watch_for
from coordinator.model_run import unwatched
from coordinator.model_setup import ModelSetup, set_up
from coordinator.process_table import SLACK_S
from errors import MisuseError

MIB = 1 << 20
NOBODY = 2**22 + 1


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def setup(tmp_path: Path) -> ModelSetup:
    return set_up(model_run(small_model(tmp_path / "model")), lambda: MACHINE, 64)


def test_the_line_names_ranks_and_both_sizes() -> None:
    line = progress_line({1: 5 * MIB, 0: 1234 * MIB}, {0: 2000 * MIB, 1: 7 * MIB, 2: MIB})
    assert line == "loading: rank 0 1,234 of 2,000 MiB, rank 1 5 of 7 MiB"


def test_what_is_due_is_what_the_plan_says(setup: ModelSetup) -> None:
    weights = setup.capacity.ranks[1].weight_bytes
    assert bytes_due(setup, 1) == weights + setup.capacity.state_bytes(1)


def test_resident_sizes_are_the_kernels() -> None:
    before = resident_bytes(os.getpid())
    assert before is not None
    block = b"x" * (64 * MIB)
    after = resident_bytes(os.getpid())
    assert after is not None
    assert after >= before + len(block) // 2
    assert resident_bytes(NOBODY) is None


def test_a_terminal_sees_the_line_come_and_go(setup: ModelSetup) -> None:
    terminal = Terminal()
    deadline = time.monotonic() + SLACK_S
    with load_progress(terminal, setup, {0: os.getpid(), 1: NOBODY}):
        while "loading: rank 0" not in terminal.getvalue() and time.monotonic() < deadline:
            time.sleep(0.01)
    text = terminal.getvalue()
    assert "loading: rank 0" in text
    assert "rank 1" not in text
    assert text.endswith("\r\x1b[K")
    assert "\n" not in text


def test_the_line_goes_when_a_load_fails(setup: ModelSetup) -> None:
    terminal = Terminal()

    def fail() -> None:
        with load_progress(terminal, setup, {0: os.getpid()}):
            raise MisuseError("a load failed")

    with pytest.raises(MisuseError):
        fail()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_only_a_terminal_that_can_move_back_is_written_to() -> None:
    assert watch_for(io.StringIO(), {"TERM": "xterm"}) is unwatched
    assert watch_for(Terminal(), {"TERM": "dumb"}) is unwatched
    assert watch_for(Terminal(), {}) is unwatched
    assert watch_for(Terminal(), {"TERM": "xterm"}) is not unwatched
