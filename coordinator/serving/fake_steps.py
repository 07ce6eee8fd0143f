"""Observed steps for tests: whole conversations of two ranks, whose times are small numbers."""

from __future__ import annotations

from array import array
from typing import Final

from coordinator.step_timing import COORDINATOR, Event, Note, Notes, ObservedStep
from errors import PeerError
from program.plan import Row, Sample, StepPlan
from wire.checksum import crc32
from wire.frame import Header, Kind, Side
from wire.metadata import Command, Tensor
from wire.recorder import Record, Recorder
from wire.session import State

WORLD_SIZE: Final = 2
# Frames of one step: per rank a command, a partial and a reduction.
FRAMES: Final = 3 * WORLD_SIZE
PHASE: Final = "layers.0.mlp"
VALUES: Final = (0.0, -1.5, 2.5, 0.0)


def frame(
    sender: Side, rank: int, kind: Kind, sequence: int, values: tuple[float, ...] = ()
) -> Record:
    """A sound frame, as a connection would record it."""
    payload = array("f", values).tobytes()
    metadata = (
        Tensor("<f4", PHASE, rank, (1, len(values)), f"{PHASE}.{kind.name.lower()}").to_bytes()
        if values
        else Command(PHASE, None, rank, sequence).to_bytes()
    )
    checksum = crc32(payload, crc32(metadata))
    header = Header(kind, 0, 1, sequence, len(metadata), len(payload), checksum)
    return Record(sender, rank, State.OPEN, PHASE, header, metadata, payload, None, None)


def frames(number: int, values: tuple[float, ...] = VALUES) -> list[Record]:
    """Of one step, in the order in which a coordinator sends and consumes them."""
    kinds = (
        (Side.COORDINATOR, Kind.COMMAND, ()),
        (Side.WORKER, Kind.PARTIAL, values),
        (Side.COORDINATOR, Kind.REDUCTION, values),
    )
    return [
        frame(sender, rank, kind, 2 * number + at // 2, numbers)
        for at, (sender, kind, numbers) in enumerate(kinds)
        for rank in range(WORLD_SIZE)
    ]


def notes(start: float) -> tuple[Note, ...]:
    """Of a step of ten seconds: rank 0 computes for 3, rank 1 for 4; the sum takes 1."""
    return (
        (0, Event.WRITE, PHASE, start + 0, start + 1),
        (1, Event.WRITE, PHASE, start + 1, start + 2),
        (0, Event.READ, PHASE, start + 4, start + 5),
        (1, Event.READ, PHASE, start + 6, start + 7),
        (COORDINATOR, Event.REDUCE, PHASE, start + 7, start + 8),
        (0, Event.WRITE, PHASE, start + 8, start + 9),
        (1, Event.WRITE, PHASE, start + 9, start + 10),
    )


def observed(
    number: int,
    recorder: Recorder | None = None,
    *,
    start: float | None = None,
    failure: PeerError | None = None,
    values: tuple[float, ...] = VALUES,
) -> ObservedStep:
    """A step with one prefill row of 3 tokens and one decode row.

    recorder: gets its frames, and says which are kept; without one all are.
    """
    begun = 10.0 * number if start is None else start
    kept = Recorder(keep_bytes=True) if recorder is None else recorder
    first = FRAMES * number if recorder is None else kept.frames
    before = kept.frames
    for record in frames(number, values):
        kept.record(record)
    rows = (Row(7, 0, 0, (1, 2, 3), None), Row(8, 1, 5, (4,), Sample()))
    return ObservedStep(
        plan=StepPlan(number, rows=rows),
        world_size=WORLD_SIZE,
        start=begun,
        end=begun + 10.0,
        notes=Notes(notes(begun)),
        records=kept.since(before),
        first_frame=max(first, kept.oldest) if recorder is not None else first,
        oldest_frame=kept.oldest if recorder is not None else 0,
        prefill_tokens=3,
        decode_rows=1,
        failure=failure,
    )
