"""The coordinator's side of a recorded run again: the real group over taped pipes."""

from __future__ import annotations

from dataclasses import fields

from coordinator.block_run import run_block
from coordinator.frame_difference import NOTHING, FieldDifference, find_difference
from coordinator.recording import Recording
from coordinator.replay_result import Difference, ReplayResult, check_rank
from coordinator.taped_pipe import TapedPipe
from errors import ConfigError
from manifest.fields import BLOCK
from manifest.value_rules import shown
from wire.connection import Connection
from wire.frame import Side
from wire.ledger import Entry, read_ledger
from wire.link import Link
from wire.metadata import Hello
from wire.recorder import Recorder
from wire.session import Session
from wire.tape import TapeRecord, read_tape


def replay_coordinator(recording: Recording, rank: int | None) -> ReplayResult:
    """Run the coordinator again. rank: judge only this rank's conversation.

    Compares every frame sent and read, every ledger entry and the output.
    Raises ConfigError for a recording of another program, or a rank that it does not have.
    """
    if recording.manifest.program != BLOCK:
        rule = "can't be replayed as coordinator: only the block's inputs follow from its manifest"
        raise ConfigError.single("program", recording.manifest.program, rule)
    check_rank(recording, rank)
    if not any(record.sender is Side.COORDINATOR for record in recording.tape):
        return ReplayResult(0, None)
    recorder = Recorder(keep_bytes=True)
    outcome = run_block(recording.manifest, lambda _: _connect(recording, recorder), recorder)
    tape, entries = read_tape(recorder.tape()), read_ledger(recorder.ledger())
    judged = [
        index
        for index in range(max(len(tape), len(recording.tape)))
        if rank is None or rank in _ranks_at(index, tape, recording.tape)
    ]
    for index in judged:
        difference = _record_difference(index, recording, tape, entries)
        if difference is not None:
            return ReplayResult(len(judged), difference)
    if recording.output not in (None, outcome.output):
        what = _output_difference(recording.output or b"", outcome.output or b"")
        return ReplayResult(len(judged), Difference(len(tape), 0, what))
    return ReplayResult(len(judged), None)


def _output_difference(taped: bytes, replayed: bytes) -> FieldDifference:
    """The first byte at which two outputs differ."""
    pairs = enumerate(zip(taped, replayed, strict=False))
    at = next((index for index, (a, b) in pairs if a != b), min(len(taped), len(replayed)))
    values = [f"0x{data[at]:02x}" if at < len(data) else NOTHING for data in (taped, replayed)]
    return FieldDifference(f"output byte {at}", *values)


def _connect(recording: Recording, recorder: Recorder) -> tuple[Link, ...]:
    """One link per rank, greeted in rank order, as in a run (docs/spec/session.md, S6)."""
    links = []
    for rank in range(recording.manifest.ranks):
        connection = Connection(Side.COORDINATOR, Session(), rank, recorder)
        link = Link(connection, TapedPipe(recording, rank))
        hello = Hello(byte_order="little", dtype="<f4", rank=rank)
        link.receive(hello.to_bytes(), 0, deadline=1.0)
        links.append(link)
    return tuple(links)


def _ranks_at(index: int, *tapes: list[TapeRecord]) -> set[int]:
    return {tape[index].rank for tape in tapes if index < len(tape)}


def _record_difference(
    index: int, recording: Recording, tape: list[TapeRecord], entries: list[Entry]
) -> Difference | None:
    """The first difference between the recorded and the replayed record at `index`."""
    rank = min(_ranks_at(index, recording.tape, tape))
    taped = recording.tape[index] if index < len(recording.tape) else None
    replayed = tape[index] if index < len(tape) else None
    if taped is None or replayed is None:
        sides = [NOTHING if one is None else _direction(one) for one in (taped, replayed)]
        return Difference(index, rank, FieldDifference("frame", *sides))
    if taped[:2] != replayed[:2]:
        sides = [_direction(taped), _direction(replayed)]
        return Difference(index, rank, FieldDifference("direction", *sides))
    what = find_difference(taped.raw, replayed.raw)
    what = what or _entry_difference(recording.entries[index], entries[index])
    return None if what is None else Difference(index, rank, what)


def _direction(record: TapeRecord) -> str:
    return f"{len(record.raw)} bytes from {record.sender.value}, rank {record.rank}"


def _entry_difference(taped: Entry, replayed: Entry) -> FieldDifference | None:
    for field in fields(Entry):
        left, right = getattr(taped, field.name), getattr(replayed, field.name)
        if left != right:
            return FieldDifference(f"ledger {field.name}", shown(left), shown(right))
    return None
