"""The log of steps: the last ones, with the frames that are still kept."""

from __future__ import annotations

import pytest

from coordinator.fake_ranks import FakeClock
from coordinator.serving.fake_steps import FRAMES, observed
from coordinator.serving.step_view import summary_json
from coordinator.serving.steps import STEPS_MAX, StepLog
from coordinator.step_timing import IDLE
from errors import ProtocolError
from wire.recorder import Recorder

GONE = ProtocolError("closed", "the stream ended", rank=1, phase="plan")


@pytest.fixture
def log() -> StepLog:
    return StepLog(FakeClock(), steps_max=5)


def numbers(log: StepLog, count: int = 100) -> list[int]:
    return [step.plan.step for step in log.recent(count)]


def test_the_last_steps_are_kept(log: StepLog) -> None:
    for number in range(8):
        log.stepped(observed(number))
    assert numbers(log) == [3, 4, 5, 6, 7]
    assert numbers(log, 2) == [6, 7]
    assert [number for number in range(-1, 9) if log.find(number)] == [3, 4, 5, 6, 7]
    assert log.sampled == 8
    assert STEPS_MAX == 512


def test_notes_are_bounded_too_and_the_newest_step_stays() -> None:
    each = len(observed(0).notes)
    log = StepLog(FakeClock(), notes_max=3 * each)
    for number in range(6):
        log.stepped(observed(number))
    assert numbers(log) == [3, 4, 5]
    small = StepLog(FakeClock(), notes_max=1)
    for number in range(3):
        small.stepped(observed(number))
    assert numbers(small) == [2]


def test_nothing_yet(log: StepLog) -> None:
    assert log.recent(3) == ()
    assert log.find(0) is None
    assert log.summaries(3) == []
    assert log.doing(0) == IDLE


def test_frames_are_those_that_the_recorder_still_has(log: StepLog) -> None:
    recorder = Recorder(False, recent_bytes=2 * FRAMES * 600)
    for number in range(5):
        log.stepped(observed(number, recorder))
    held = {step.plan.step: len(step.records) for step in log.recent(5)}
    assert held[4] == FRAMES
    assert held[0] == held[1] == 0
    assert sum(held.values()) * 500 < 3 * FRAMES * 600


def test_a_step_whose_first_frames_are_gone_when_it_ends(log: StepLog) -> None:
    recorder = Recorder(False, recent_bytes=600 * FRAMES // 2)
    log.stepped(observed(0, recorder))
    found = log.find(0)
    assert found is not None
    assert 0 < len(found.records) < FRAMES
    assert found.first_frame == recorder.oldest > 0
    assert found.first_frame + len(found.records) == FRAMES


def test_a_new_group_counts_its_steps_from_0_and_tokens_go_on(log: StepLog) -> None:
    for number in range(3):
        log.stepped(observed(number))
    log.began(2, lambda rank: f"rank {rank}")
    assert log.recent(9) == ()
    assert log.summaries(9) == []
    log.stepped(observed(0, start=100.0))
    assert [summary["at_s"] for summary in log.summaries(9)] == [0.0]
    assert log.sampled == 4
    assert log.doing(1) == "rank 1"


def test_a_failed_step_is_kept_and_not_counted(log: StepLog) -> None:
    log.stepped(observed(0, failure=GONE))
    assert numbers(log) == [0]
    assert log.sampled == 0


def test_summaries_are_those_of_the_steps_and_made_once(log: StepLog) -> None:
    for number in range(3):
        log.stepped(observed(number))
    first = log.summaries(2)
    assert first == [summary_json(step, log.started_at) for step in log.recent(2)]
    log.stepped(observed(3))
    again = log.summaries(3)
    assert again[:2] == first
    assert again[0] is first[0]
