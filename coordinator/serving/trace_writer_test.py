"""Traces never hold up a step: what can't be written is lost and counted, and the rest goes on."""

from __future__ import annotations

import json
import threading
from collections import Counter
from dataclasses import fields
from pathlib import Path

import pytest

from coordinator.process_table import wait_until
from coordinator.serving.fake_steps import FRAMES, observed
from coordinator.serving.trace_jsonl import FRAME_KEYS, StepTrace
from coordinator.serving.trace_writer import WAITING_MAX, TraceWriter
from coordinator.step_timing import ObservedStep
from wire.ledger import Entry


class Noting:
    """A trace file that may be slow or refuse."""

    sink = "trace"

    def __init__(self) -> None:
        self.taken: list[tuple[int, int]] = []
        self.closed = 0
        self.going = threading.Event()
        self.going.set()
        self.refuses = False

    def write(self, epoch: int, step: ObservedStep) -> bool:
        self.going.wait()
        if self.refuses:
            return False
        self.taken.append((epoch, step.plan.step))
        return True

    def close(self) -> None:
        self.closed += 1


def test_steps_in_order_with_their_group() -> None:
    file, lost = Noting(), Counter[str]()
    writer = TraceWriter([file], lambda sink: lost.update([sink]))
    for epoch in (1, 9):
        writer.epoch_began(epoch)
        writer.began(2, lambda rank: "idle")
        for number in range(3):
            writer.stepped(observed(number))
    writer.close()
    writer.close()
    assert file.taken == [(epoch, number) for epoch in (1, 9) for number in range(3)]
    assert (file.closed, lost) == (1, Counter())


def test_a_full_queue_loses_steps_and_never_waits() -> None:
    file, lost = Noting(), Counter[str]()
    writer = TraceWriter([file], lambda sink: lost.update([sink]))
    file.going.clear()
    step = observed(0)
    for _ in range(WAITING_MAX + 50):
        writer.stepped(step)
    # One is in the file's hands at most.
    assert 49 <= lost["trace"] <= 50
    file.going.set()
    wait_until(lambda: len(file.taken) >= WAITING_MAX)
    writer.stepped(step)
    writer.close()
    assert len(file.taken) + lost["trace"] == WAITING_MAX + 51


def test_the_bytes_that_wait_are_bounded() -> None:
    file, lost = Noting(), Counter[str]()
    writer = TraceWriter([file], lambda sink: lost.update([sink]))
    file.going.clear()
    # 16 MiB each: two partials and two reductions of 4 MiB.
    step = observed(0, values=(1.0,) * (1 << 20))
    for _ in range(5):
        writer.stepped(step)
    assert lost["trace"] >= 2
    file.going.set()
    writer.close()
    assert len(file.taken) + lost["trace"] == 5


def test_a_file_that_refuses_is_counted_and_tried_again() -> None:
    file, lost = Noting(), Counter[str]()
    writer = TraceWriter([file], lambda sink: lost.update([sink]))
    file.refuses = True
    writer.stepped(observed(0))
    wait_until(lambda: lost["trace"] == 1)
    file.refuses = False
    writer.stepped(observed(1))
    writer.close()
    assert file.taken == [(0, 1)]


def test_without_files_there_is_no_thread() -> None:
    before = threading.active_count()
    writer = TraceWriter([], lambda sink: None)
    writer.stepped(observed(0))
    assert threading.active_count() == before
    writer.close()


def test_after_the_end_steps_are_lost() -> None:
    file, lost = Noting(), Counter[str]()
    writer = TraceWriter([file], lambda sink: lost.update([sink]))
    writer.close()
    writer.stepped(observed(0))
    assert (file.taken, lost["trace"]) == ([], 1)


def test_the_end_does_not_wait_for_a_disk_that_takes_nothing() -> None:
    file, lost = Noting(), Counter[str]()
    writer = TraceWriter([file], lambda sink: lost.update([sink]), close_s=0.05)
    file.going.clear()
    for number in range(3):
        writer.stepped(observed(number))
    # The writer has the first one in its hands.
    wait_until(lambda: writer.waiting == 2)
    assert not writer.close()
    assert (file.closed, lost["trace"]) == (0, 2)
    file.going.set()
    wait_until(lambda: file.closed == 1)
    assert writer.close()
    assert file.taken == [(0, 0)]


def lines_of(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_a_line_per_step(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    trace = StepTrace(path, origin=0.0)
    for number in range(3):
        assert trace.write(7, observed(number))
    trace.close()
    lines = lines_of(path)
    assert [line["step"] for line in lines] == [0, 1, 2]
    assert {(line["type"], line["version"], line["group_epoch"]) for line in lines} == {
        ("step", 1, 7)
    }
    frames = lines[1]["frames"]
    assert isinstance(frames, list)
    assert [frame["index"] for frame in frames] == list(range(FRAMES, 2 * FRAMES))
    # A ledger line's keys but the digest: no more than `diff_trace` reads, and no less.
    assert set(FRAME_KEYS) == {field.name for field in fields(Entry)} - {"payload_sha256"}
    assert all(tuple(frame) == FRAME_KEYS for frame in frames)


@pytest.mark.parametrize("steps", [7, 40])
def test_a_full_trace_is_renamed_and_begins_anew(tmp_path: Path, steps: int) -> None:
    path = tmp_path / "t.jsonl"
    trace = StepTrace(path, origin=0.0, bytes_max=10_000)
    for number in range(steps):
        assert trace.write(1, observed(number))
    trace.close()
    older = tmp_path / "t.jsonl.1"
    assert max(path.stat().st_size, older.stat().st_size) <= 10_000
    kept = [line["step"] for file in (older, path) for line in lines_of(file)]
    assert kept == list(range(steps - len(kept), steps))


def test_a_step_larger_than_the_file_is_lost(tmp_path: Path) -> None:
    trace = StepTrace(tmp_path / "t.jsonl", origin=0.0, bytes_max=100)
    assert not trace.write(1, observed(0))
    trace.close()
