"""What a step's time went to, as the coordinator sees it: who was awaited, and for how long.

Nothing of it goes on the wire: pipes are wrapped, and what they do is noted with the time. A rank's
lane is divided without gap or overlap into

- wire: a frame is written to it, or an answer of it is read, from its first readable byte;
- compute: between the end of a write and the first readable byte of the answer. An upper bound of
  what the rank computes: it includes the way of the bytes and, where a rank's answer came while the
  coordinator was not polling, the time until it polled;
- wait: its answer is in, or nothing was asked of it yet.

The sum over ranks is `reduce`, on the coordinator's own lane. An observer is told of each step
after it has ended. It must not know processes, HTTP or what becomes of the times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from errors import PeerError
from program.plan import StepPlan
from wire.frame import Buffer
from wire.link import Link, Pipe
from wire.recorder import Record

# The lane of the coordinator; other lanes are ranks.
COORDINATOR: Final = -1


class SpanKind(Enum):
    """See the top of this file."""

    COMPUTE = "compute"
    WAIT = "wait"
    WIRE = "wire"
    REDUCE = "reduce"


class Span(NamedTuple):
    """lane: a rank, or COORDINATOR. start, end: seconds on the observed clock."""

    lane: int
    kind: SpanKind
    phase: str
    start: float
    end: float


class Event(Enum):
    """What was noted. ARRIVED: the first byte of an answer can be read."""

    WRITE = "write"
    READ = "read"
    ARRIVED = "arrived"
    REDUCE = "reduce"

    # Members are singletons; Enum's own hash is a Python call.
    __hash__ = object.__hash__


# Lane, event, phase, start, end: a plain tuple, because a step makes dozens. A write has the phase
# of its frame in the ledger, a read that of the awaited one. ARRIVED ends when it starts.
Note = tuple[int, Event, str, float, float]


@dataclass(frozen=True, slots=True)
class ObservedStep:
    """One step after it has ended. start, end: seconds; notes: in the order of time per lane.

    first_frame: ledger index of the first of `records`, the step's frames as far as the recorder
    still has them. oldest_frame: index of the oldest frame that the recorder has. prefill_tokens,
    decode_rows: what the plan's rows were for. failure: why the step has no result.
    """

    plan: StepPlan
    world_size: int
    start: float
    end: float
    notes: tuple[Note, ...]
    records: tuple[Record, ...]
    first_frame: int
    oldest_frame: int
    prefill_tokens: int
    decode_rows: int
    failure: PeerError | None

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.end - self.start

    def spans(self) -> tuple[Span, ...]:
        """By lane, the coordinator's first, and in the order of time within a lane."""
        spans = [
            Span(COORDINATOR, SpanKind.REDUCE, phase, start, end)
            for _, event, phase, start, end in self.notes
            if event is Event.REDUCE
        ]
        for rank in range(self.world_size):
            spans += lane_spans(rank, self.notes, self.start, self.end)
        return tuple(spans)


# The sum over ranks, as `reduce_partials` takes and gives it.
Reduce = Callable[[Sequence[Buffer], str, str], Buffer]
# Between steps.
IDLE: Final = "idle"
# What a rank does right now: "compute", "wait" or IDLE; for a person who looks.
Doing = Callable[[int], str]


class StepObserver(Protocol):
    """Called by the engine's thread, between frames of no step; must neither wait nor raise."""

    def began(self, world_size: int, doing: Doing) -> None:
        """A group is loaded and its first step may come. `doing` may be called by any thread."""

    def stepped(self, step: ObservedStep) -> None:
        """A step has ended, with a result or a failure."""


class Observers:
    """Several observers as one, in the order given."""

    def __init__(self, observers: Iterable[StepObserver]) -> None:
        self._observers = tuple(observers)

    def began(self, world_size: int, doing: Doing) -> None:
        for observer in self._observers:
            observer.began(world_size, doing)

    def stepped(self, step: ObservedStep) -> None:
        for observer in self._observers:
            observer.stepped(step)


class StepTimer:
    """Notes what happens on links and in sums. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.running = False
        self.notes: list[Note] = []

    def begin(self) -> float:
        """A step starts, now. What came between steps is not kept."""
        self.notes = []
        self.running = True
        return self.clock()

    def end(self) -> float:
        """The step has ended, now."""
        self.running = False
        return self.clock()

    def attach(self, links: Sequence[Link]) -> None:
        """From here on what these links write and read is noted; `links[rank]` is that rank's."""
        for rank, link in enumerate(links):
            link.pipe = _TimedPipe(link, rank, self)

    def arrived(self, rank: int, link: Link) -> None:
        """The first byte of a rank's answer can be read; may be said again."""
        if self.running:
            now = self.clock()
            phase = link.connection.session.phase_name
            self.notes.append((rank, Event.ARRIVED, phase, now, now))

    def timed(self, reduce: Reduce, link: Link) -> Reduce:
        """The sum, noted on the coordinator's lane. link: of any rank; it knows the phase."""

        def timed_reduce(partials: Sequence[Buffer], order: str, dtype: str) -> Buffer:
            start = self.clock()
            total = reduce(partials, order, dtype)
            phase = link.connection.session.phase_name
            self.notes.append((COORDINATOR, Event.REDUCE, phase, start, self.clock()))
            return total

        return timed_reduce

    def doing(self, rank: int) -> str:
        """See `Doing`; may be called by any thread."""
        notes = self.notes
        if not self.running:
            return IDLE
        for at in range(len(notes) - 1, -1, -1):
            if notes[at][0] == rank:
                asked = notes[at][1] is Event.WRITE
                return str((SpanKind.COMPUTE if asked else SpanKind.WAIT).value)
        return str(SpanKind.WAIT.value)


class _TimedPipe(Pipe):
    """A rank's pipe; what it does in a step is noted."""

    def __init__(self, link: Link, rank: int, timer: StepTimer) -> None:
        self._pipe = link.pipe
        self._connection = link.connection
        self._rank = rank
        self._timer = timer
        self._clock = timer.clock

    def send(self, buffers: list[Buffer], deadline: float) -> None:
        start = self._clock()
        self._pipe.send(buffers, deadline)
        self._timer.notes.append(
            (self._rank, Event.WRITE, self._connection.newest_phase, start, self._clock())
        )

    def receive(self, limit: int, deadline: float) -> bytes:
        start = self._clock()
        data = self._pipe.receive(limit, deadline)
        self._read(start)
        return data

    def receive_into(self, space: memoryview, deadline: float) -> int:
        start = self._clock()
        count = self._pipe.receive_into(space, deadline)
        self._read(start)
        return count

    def _read(self, start: float) -> None:
        phase = self._connection.session.phase_name
        self._timer.notes.append((self._rank, Event.READ, phase, start, self._clock()))

    def clock(self) -> float:
        return self._pipe.clock()

    def fileno(self) -> int:
        return self._pipe.fileno()

    def close(self) -> None:
        self._pipe.close()


def lane_spans(rank: int, notes: Iterable[Note], start: float, end: float) -> list[Span]:
    """A rank's lane from `start` to `end`, divided by what was noted; neighbours meet exactly."""
    lane = _Lane(rank, start)
    for noted, event, phase, begun, ended in notes:
        if noted != rank:
            continue
        if event is Event.WRITE:
            lane.answered()
            lane.to(begun, phase)
            lane.add(SpanKind.WIRE, phase, ended)
            lane.doing = SpanKind.COMPUTE
        elif event is Event.ARRIVED:
            if lane.doing is SpanKind.COMPUTE:
                lane.to(ended, phase)
                lane.doing = SpanKind.WAIT
        elif lane.doing is SpanKind.COMPUTE:
            # Nobody saw it arrive: the read that waited for it is all that is known.
            lane.to(ended, phase)
            lane.doing = SpanKind.WIRE
        else:
            if lane.doing is SpanKind.WAIT:
                lane.to(begun, phase)
            lane.add(SpanKind.WIRE, phase, ended)
            lane.doing = SpanKind.WIRE
    lane.answered()
    lane.to(end, lane.phase)
    return lane.spans


class _Lane:
    """What is known of a rank's time up to `at`. doing: what it has been doing since."""

    def __init__(self, rank: int, start: float) -> None:
        self.spans: list[Span] = []
        self.at = start
        self.phase = ""
        self.doing = SpanKind.WAIT
        self._rank = rank

    def to(self, time: float, phase: str) -> None:
        """Until `time` it did what it was doing."""
        self.add(self.doing, phase, time)

    def answered(self) -> None:
        """The answer that was being read is complete."""
        if self.doing is SpanKind.WIRE:
            self.doing = SpanKind.WAIT

    def add(self, kind: SpanKind, phase: str, end: float) -> None:
        self.phase = phase
        if end > self.at:
            self.spans.append(Span(self._rank, kind, phase, self.at, end))
            self.at = end
