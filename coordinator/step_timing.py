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

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol, cast

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

    # Members are singletons; Enum's own hash is a Python call, and these are keys of sums.
    __hash__ = object.__hash__


class Span(NamedTuple):
    """lane: a rank, or COORDINATOR. start, end: seconds on the observed clock."""

    lane: int
    kind: SpanKind
    phase: str
    start: float
    end: float


# A Span as it is first made: cheaply.
RawSpan = tuple[int, SpanKind, str, float, float]


class Event(Enum):
    """What was noted. ARRIVED: an answer's first byte can be read, while another is awaited."""

    WRITE = "write"
    READ = "read"
    ARRIVED = "arrived"
    REDUCE = "reduce"


# Lane, event, phase, start, end. phase: the one that a write begins, or that a read answers. A read
# starts with its first byte; ARRIVED ends when it starts.
Note = tuple[int, Event, str, float, float]


class Notes:
    """What was noted, in order. One flat list: a step notes dozens, and each tuple that is kept is
    one more thing for the collector of garbage to look at.
    """

    def __init__(self, notes: Iterable[Note] = ()) -> None:
        self._flat: list[int | Event | str | float] = []
        # For whoever notes: always of the same list.
        self.add: Callable[[Note], None] = self._flat.extend
        for note in notes:
            self.add(note)

    def __iter__(self) -> Iterator[Note]:
        parts = iter(self._flat)
        return cast(Iterator[Note], zip(parts, parts, parts, parts, parts, strict=True))

    def __len__(self) -> int:
        return len(self._flat) // 5

    def copy(self) -> Notes:
        """As they are now; may be called by any thread."""
        copied = Notes()
        copied._flat += self._flat
        return copied

    def clear(self) -> None:
        """Nothing was noted."""
        self._flat.clear()


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
    notes: Notes
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
        raw = divide(self.notes, self.world_size, self.start, self.end)
        return tuple(sorted(map(Span._make, raw), key=lambda span: (span.lane, span.start)))


# Looked up once: an enum's member costs a search in its class, and these are used for every frame.
_WRITE, _READ, _ARRIVED, _REDUCE = Event
_COMPUTE_SPAN, _WAIT_SPAN, _WIRE_SPAN, _REDUCE_SPAN = SpanKind

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
        self.notes = Notes()

    def begin(self) -> float:
        """A step starts, now. What came between steps is not kept."""
        self.notes.clear()
        self.running = True
        return self.clock()

    def end(self) -> float:
        """The step has ended, now."""
        self.running = False
        return self.clock()

    def attach(self, links: Sequence[Link], *, watched: bool) -> None:
        """From here on what these links write and read is noted; `links[rank]` is that rank's.

        watched: then whoever reads waits first (rank_watch.py, put around it later), so that a read
        starts when there is something to read. Else all that is known is when it ended.
        """
        for rank, link in enumerate(links):
            link.pipe = _TimedPipe(link, rank, self, watched)

    def arrived(self, rank: int, link: Link) -> None:
        """An answer's first byte can be read, while another is awaited; may be said again."""
        if self.running:
            now = self.clock()
            phase = link.connection.session.phase_name
            self.notes.add((rank, _ARRIVED, phase, now, now))

    def timed(self, reduce: Reduce, link: Link) -> Reduce:
        """The sum, noted on the coordinator's lane. link: of any rank; it knows the phase."""

        def timed_reduce(partials: Sequence[Buffer], order: str, dtype: str) -> Buffer:
            start = self.clock()
            total = reduce(partials, order, dtype)
            phase = link.connection.session.phase_name
            self.notes.add((COORDINATOR, _REDUCE, phase, start, self.clock()))
            return total

        return timed_reduce

    def doing(self, rank: int) -> str:
        """See `Doing`; may be called by any thread."""
        if not self.running:
            return IDLE
        for note in reversed(list(self.notes.copy())):
            if note[0] == rank:
                return str((_COMPUTE_SPAN if note[1] is _WRITE else _WAIT_SPAN).value)
        return str(_WAIT_SPAN.value)


class _TimedPipe(Pipe):
    """A rank's pipe; what it does in a step is noted."""

    def __init__(self, link: Link, rank: int, timer: StepTimer, watched: bool) -> None:
        self._pipe = link.pipe
        self._session = link.connection.session
        self._rank = rank
        self._note = timer.notes.add
        self._clock = timer.clock
        self._watched = watched
        # Of a write that has begun and waits for room.
        self._begun: float | None = None

    def send(self, buffers: list[Buffer], deadline: float) -> None:
        start = self._clock()
        self._pipe.send(buffers, deadline)
        self._note((self._rank, _WRITE, self._session.phase_name, start, self._clock()))

    def send_some(self, buffers: Sequence[Buffer]) -> Sequence[Buffer]:
        start = self._clock() if self._begun is None else self._begun
        pending = self._pipe.send_some(buffers)
        self._begun = start if pending else None
        if not pending:
            self._note((self._rank, _WRITE, self._session.phase_name, start, self._clock()))
        return pending

    def receive(self, limit: int, deadline: float) -> bytes:
        start = self._clock()
        data = self._pipe.receive(limit, deadline)
        end = self._clock()
        begun = start if self._watched else end
        self._note((self._rank, _READ, self._session.phase_name, begun, end))
        return data

    def receive_into(self, space: memoryview, deadline: float) -> int:
        start = self._clock()
        count = self._pipe.receive_into(space, deadline)
        end = self._clock()
        begun = start if self._watched else end
        self._note((self._rank, _READ, self._session.phase_name, begun, end))
        return count

    def broken_by(self) -> int | None:
        return self._pipe.broken_by()

    def clock(self) -> float:
        return self._pipe.clock()

    def fileno(self) -> int:
        return self._pipe.fileno()

    def close(self) -> None:
        self._pipe.close()


def divide(notes: Iterable[Note], ranks: int, start: float, end: float) -> list[RawSpan]:
    """Every rank's lane from `start` to `end`, and the coordinator's sums; in no order of lanes.

    A rank's neighbouring spans meet exactly. One pass, because it is done after every step.
    """
    spans: list[RawSpan] = []
    at, phases = [start] * ranks, [""] * ranks
    doing = [_WAIT_SPAN] * ranks
    for lane, event, phase, begun, ended in notes:
        if event is _REDUCE:
            spans.append((COORDINATOR, _REDUCE_SPAN, phase, begun, ended))
            continue
        since, kind = at[lane], doing[lane]
        if event is _ARRIVED:
            if kind is not _COMPUTE_SPAN:
                continue
            begun, doing[lane] = ended, _WAIT_SPAN
        elif event is _READ:
            doing[lane] = _WIRE_SPAN
        else:
            doing[lane] = _COMPUTE_SPAN
        if begun > since:
            # What it did until now belongs to the phase that it answered.
            waited = event is _WRITE and phases[lane]
            kind = _WAIT_SPAN if waited and kind is _WIRE_SPAN else kind
            spans.append((lane, kind, phases[lane] if waited else phase, since, begun))
            since = begun
        if ended > since:
            spans.append((lane, _WIRE_SPAN, phase, since, ended))
            since = ended
        at[lane], phases[lane] = since, phase
    for lane, kind in enumerate(doing):
        if end > at[lane]:
            kind = _WAIT_SPAN if kind is _WIRE_SPAN else kind
            spans.append((lane, kind, phases[lane], at[lane], end))
    return spans
