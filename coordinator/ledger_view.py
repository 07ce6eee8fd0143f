"""`ledger DIR`: the frames of a recorded run, one line each, and the values of one tensor."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, TextIO

from coordinator.options import LedgerOptions
from coordinator.recording import Recording, read_recording
from coordinator.taped_frame import take_apart
from coordinator.tensor_text import read_values, statistics_line, value_lines
from coordinator.terminal import Style, Tone, count, printable
from wire.ledger import SEND, Entry

_HEADER: Final = "index  rank  way   kind       phase       epoch   seq    meta   payload  tensor"


def show_ledger(options: LedgerOptions, output: TextIO, style: Style) -> int:
    """Writes the view to `output`; returns the exit code. Raises ConfigError for a broken folder.

    A reader that stops reading (`| head`) ends the view quietly.
    """
    recording = read_recording(options.directory)
    try:
        for line in ledger_lines(recording, options, style):
            output.write(line + "\n")
        output.flush()
    except BrokenPipeError:
        _abandon(output)
    return 0


def ledger_lines(recording: Recording, options: LedgerOptions, style: Style) -> Iterator[str]:
    """The header, one line per matching frame (with its values under --tensor), and a count."""
    yield style.paint(_HEADER, Tone.QUIET)
    shown = 0
    for entry, record in zip(recording.entries, recording.tape, strict=True):
        if not matches(entry, options):
            continue
        shown += 1
        yield entry_line(entry, style)
        if options.tensor is not None:
            yield from _tensor_lines(record.raw)
    yield style.paint(f"{shown} of {len(recording.entries)} frames", Tone.QUIET)


def matches(entry: Entry, options: LedgerOptions) -> bool:
    """Whether every filter that is given holds."""
    wanted = (options.rank, options.kind, options.phase, options.tensor, options.direction)
    actual = (entry.rank, entry.kind, entry.phase, entry.tensor, entry.direction)
    return all(want in (None, have) for want, have in zip(wanted, actual, strict=True))


def entry_line(entry: Entry, style: Style) -> str:
    """One frame, or one failed wait, on one line."""
    way = "C->W" if entry.direction == SEND else "W->C"
    tensor = "" if entry.tensor is None else printable(entry.tensor).replace("\n", "\\n")
    if entry.shape is not None:
        tensor += f" [{','.join(str(extent) for extent in entry.shape)}]"
    line = (
        f"{entry.index:>5}  {entry.rank:>4}  {way}  {entry.kind or '-':<9}  "
        f"{printable(entry.phase):<10}  {_number(entry.epoch):>5}  {_number(entry.sequence):>4}  "
        f"{_number(entry.metadata_bytes):>6}  {_number(entry.payload_bytes):>8}  {tensor}"
    ).rstrip()
    if entry.error is not None:
        line += "  " + style.paint(f"refused: {printable(entry.error)}", Tone.BAD)
    return line


def _number(value: int | None) -> str:
    return "-" if value is None else count(value)


def _tensor_lines(raw: bytes) -> Iterator[str]:
    frame = take_apart(raw)
    values = read_values(frame.payload, frame.dtype)
    if values is None:
        yield "       its values can't be read"
        return
    yield f"       {statistics_line(values, frame.dtype)}"
    for line in value_lines(values, frame.dtype):
        yield f"       {line}"


def _abandon(output: TextIO) -> None:
    """Point the descriptor elsewhere, so that the interpreter's last flush finds a reader."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, output.fileno())
    finally:
        os.close(devnull)
