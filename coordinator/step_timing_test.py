"""Where a step's time went: lanes without gaps, and nothing else that changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator.block_run import block_group, block_step
from coordinator.fake_rank import FakePipe
from coordinator.group import StepInput
from coordinator.simulated_ranks import Loss, SimulatedRanks, Tamper
from coordinator.step_timing import (
    COORDINATOR,
    IDLE,
    Doing,
    Event,
    Note,
    Notes,
    ObservedStep,
    Observers,
    Span,
    SpanKind,
    StepTimer,
    divide,
)
from errors import PeerError
from manifest.run_manifest import from_flags
from program.plan import StepPlan
from wire.connection import Connection
from wire.frame import Side
from wire.link import Link
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session
from worker.toy_program import HIDDEN_SIZE, local_spec

WAIT, WIRE, COMPUTE = SpanKind.WAIT, SpanKind.WIRE, SpanKind.COMPUTE
WORLD_SIZE = 3


class TickingClock:
    """Each reading takes some time; so does whatever `passes` is called in."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


def spans_of(notes: Sequence[Note], start: float = 0.0, end: float = 10.0) -> list[Span]:
    """Of one rank."""
    return [Span._make(span) for span in divide(notes, 1, start, end)]


W, R, A = Event.WRITE, Event.READ, Event.ARRIVED
# What is noted of a rank, and its lane as (kind, phase, end).
LANES = {
    "nothing was asked of it": ([], [(WAIT, "", 10)]),
    "it still computes": (
        [(0, W, "a", 1, 2)],
        [(WAIT, "a", 1), (WIRE, "a", 2), (COMPUTE, "a", 10)],
    ),
    "it is awaited": (
        [(0, W, "a", 1, 2), (0, R, "a", 5, 6)],
        [(WAIT, "a", 1), (WIRE, "a", 2), (COMPUTE, "a", 5), (WIRE, "a", 6), (WAIT, "a", 10)],
    ),
    "it answers before it is awaited": (
        [(0, W, "a", 0, 2), (0, A, "a", 3, 3), (0, A, "a", 4, 4), (0, R, "a", 5, 6)],
        [(WIRE, "a", 2), (COMPUTE, "a", 3), (WAIT, "a", 5), (WIRE, "a", 6), (WAIT, "a", 10)],
    ),
    "its answer comes in pieces": (
        [(0, W, "a", 0, 1), (0, R, "a", 2, 3), (0, R, "a", 5, 6)],
        [
            *((WIRE, "a", 1), (COMPUTE, "a", 2), (WIRE, "a", 3)),
            *((WIRE, "a", 5), (WIRE, "a", 6), (WAIT, "a", 10)),
        ],
    ),
    "it waits for the others, then goes on": (
        [(0, W, "a", 0, 1), (0, R, "a", 2, 3), (0, W, "b", 6, 7), (0, R, "b", 9, 10)],
        [
            *((WIRE, "a", 1), (COMPUTE, "a", 2), (WIRE, "a", 3), (WAIT, "a", 6)),
            *((WIRE, "b", 7), (COMPUTE, "b", 9), (WIRE, "b", 10)),
        ],
    ),
    "it is told two things": (
        [(0, W, "a", 0, 1), (0, W, "b", 3, 4)],
        [(WIRE, "a", 1), (COMPUTE, "a", 3), (WIRE, "b", 4), (COMPUTE, "b", 10)],
    ),
    "nobody saw when its answer came": (
        [(0, W, "a", 0, 1), (0, R, "a", 4, 4)],
        [(WIRE, "a", 1), (COMPUTE, "a", 4), (WAIT, "a", 10)],
    ),
}


@pytest.mark.parametrize("name", LANES)
def test_a_lane(name: str) -> None:
    notes, expected = LANES[name]
    assert [(s.kind, s.phase, s.end) for s in spans_of(notes)] == expected


def test_sums_are_on_their_own_lane() -> None:
    spans = divide([(COORDINATOR, Event.REDUCE, "a", 3, 4)], 1, 0, 10)
    assert (COORDINATOR, SpanKind.REDUCE, "a", 3, 4) in spans
    assert (0, WAIT, "", 0, 10) in spans


@st.composite
def histories(draw: st.DrawFn) -> list[Note]:
    """Any events of any ranks, as far as time goes on."""
    notes: list[Note] = []
    now = 0.0
    events = st.sampled_from([Event.WRITE, Event.READ, Event.ARRIVED])
    pauses = st.integers(0, 5)
    for _ in range(draw(st.integers(0, 40))):
        begun = now + draw(pauses)
        event = draw(events)
        now = begun if event is Event.ARRIVED else begun + draw(pauses)
        notes.append((draw(st.integers(0, WORLD_SIZE - 1)), event, "p", begun, now))
    return notes


@given(notes=histories(), more=st.integers(0, 5))
def test_lanes_add_up_to_the_step(notes: list[Note], more: int) -> None:
    """Without a gap, an overlap or a span of no length, whatever happened."""
    end = max((note[4] for note in notes), default=0.0) + more
    spans = divide(notes, WORLD_SIZE, 0.0, end)
    for rank in range(WORLD_SIZE):
        at = 0.0
        for span in [span for span in map(Span._make, spans) if span.lane == rank]:
            assert span.start == at
            assert span.end > span.start
            at = span.end
        assert at == end


class Watching:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.steps: list[ObservedStep] = []
        self.groups: list[int] = []

    def began(self, world_size: int, doing: Doing) -> None:
        self.groups.append(world_size)

    def stepped(self, step: ObservedStep) -> None:
        self.steps.append(step)


def plan_step() -> StepInput:
    return StepInput(shape=(2, HIDDEN_SIZE), plan={"rows": 2})


def observed_group(
    clock: Callable[[], float], tampers: Mapping[tuple[int, int], Tamper] | None = None
) -> tuple[SimulatedRanks, StepTimer]:
    """A loaded group of simulated ranks with a timer on every link."""
    ranks = SimulatedRanks(local_spec(WORLD_SIZE), tampers=tampers)
    timer = StepTimer(clock)
    links = ranks.group._links
    timer.attach(links, watched=False)
    ranks.ready()
    ranks.group.reduce = timer.timed(ranks.group.reduce, links[0])
    return ranks, timer


def test_a_step_of_simulated_ranks_under_a_ticking_clock() -> None:
    ranks, timer = observed_group(TickingClock())
    for _ in range(3):
        start = timer.begin()
        ranks.group.run_step(plan_step())
        end = timer.end()
        spans = [Span._make(span) for span in divide(timer.notes, WORLD_SIZE, start, end)]
        sums = [span for span in spans if span.lane == COORDINATOR]
        assert [span.phase for span in sums] == ["one", "two"]
        for rank in range(WORLD_SIZE):
            lane = [span for span in spans if span.lane == rank]
            assert sum(span.end - span.start for span in lane) == end - start
            phases = list(dict.fromkeys(span.phase for span in lane))
            assert phases == ["plan", "one", "two", "result"]
            assert {span.kind for span in lane} == {WAIT, WIRE, COMPUTE}
        # What each rank is told and says: plan, command, two sums; fence, two partials, result.
        assert sum(note[1] is Event.WRITE for note in timer.notes) == 4 * WORLD_SIZE
        assert sum(note[1] is Event.READ for note in timer.notes) == 4 * WORLD_SIZE


def test_a_failed_step_ends_where_it_failed() -> None:
    ranks, timer = observed_group(TickingClock(), tampers={(1, 3): Loss.END})
    start = timer.begin()
    with pytest.raises(PeerError):
        ranks.group.run_step(plan_step())
    end = timer.end()
    spans = [Span._make(span) for span in divide(timer.notes, WORLD_SIZE, start, end)]
    assert not [span for span in spans if span.lane == COORDINATOR]
    last = [[span for span in spans if span.lane == rank][-1] for rank in range(WORLD_SIZE)]
    assert [span.kind for span in last] == [WAIT, WAIT, COMPUTE]


def test_ledger_and_tape_of_a_group_with_plans_do_not_depend_on_observation() -> None:
    plain = SimulatedRanks(local_spec(WORLD_SIZE))
    plain.ready()
    observed, timer = observed_group(TickingClock())
    for group in (plain.group, observed.group):
        timer.begin()
        for _ in range(3):
            group.run_step(plan_step())
        timer.end()
    assert observed.recorder.ledger() == plain.recorder.ledger()
    assert observed.recorder.tape() == plain.recorder.tape()


def test_ledger_and_tape_of_a_block_do_not_depend_on_observation() -> None:
    manifest = from_flags({"ranks": "2", "batch": "1", "sequence": "3", "seed": "11"})
    written = []
    for timer in (None, StepTimer(TickingClock())):
        recorder, links = Recorder(keep_bytes=True), []
        for rank in range(manifest.ranks):
            link = Link(Connection(Side.COORDINATOR, Session(), rank, recorder), FakePipe(rank))
            link.receive(Hello("little", "<f4", rank).to_bytes(), 0, deadline=1.0)
            links.append(link)
        if timer is not None:
            timer.attach(links, watched=False)
        group = block_group(manifest, tuple(links))
        if timer is not None:
            group.reduce = timer.timed(group.reduce, links[0])
            timer.begin()
        group.run_step(block_step(manifest))
        written.append((recorder.ledger(), recorder.tape()))
        if timer is not None:
            timer.end()
            assert len(timer.notes) > 10
    assert written[0] == written[1]


def test_what_a_rank_does_right_now() -> None:
    ranks, timer = observed_group(TickingClock())
    assert timer.doing(0) == IDLE
    timer.begin()
    assert [timer.doing(rank) for rank in range(2)] == ["wait", "wait"]
    timer.notes.add((0, Event.WRITE, "a", 1, 2))
    assert [timer.doing(rank) for rank in range(2)] == ["compute", "wait"]
    timer.arrived(0, ranks.group._links[0])
    assert timer.doing(0) == "wait"
    timer.end()
    assert timer.doing(0) == IDLE


@given(notes=histories())
def test_notes_are_kept_as_they_were_noted(notes: list[Note]) -> None:
    kept = Notes(notes)
    assert list(kept) == list(kept.copy()) == notes
    assert len(kept) == len(notes)
    copied = kept.copy()
    kept.clear()
    kept.add((0, Event.READ, "other", 1, 2))
    assert list(kept) == [(0, Event.READ, "other", 1, 2)]
    assert list(copied) == notes


def test_arrivals_between_steps_are_nothing() -> None:
    ranks, timer = observed_group(TickingClock())
    timer.arrived(0, ranks.group._links[0])
    assert not [note for note in timer.notes if note[1] is Event.ARRIVED]


def test_observers_are_told_in_order() -> None:
    told = [Watching(), Watching()]
    both = Observers(told)
    step = ObservedStep(StepPlan(0), 2, 0.0, 1.0, Notes(), (), 0, 0, 0, 0, None)
    both.began(2, lambda rank: IDLE)
    both.stepped(step)
    assert [(one.groups, one.steps) for one in told] == [([2], [step])] * 2
    assert step.duration == 1.0
    assert [span.lane for span in step.spans()] == [0, 1]
