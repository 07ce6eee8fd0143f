"""What the ledger says, for people: one line per frame, runs of like frames on one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from wire.frame import Kind
from wire.ledger import SEND, Entry


def trace_lines(entries: Sequence[Entry]) -> Iterator[str]:
    """`> 1 COMMAND ... FED`: direction, rank, frame, epoch and sequence, state before it."""
    for _, group in groupby(entries, _run):
        alike = list(group)
        yield _line(alike)


def _run(entry: Entry) -> tuple[object, ...]:
    """Weights of one rank are told together; every other frame has a line of its own."""
    if entry.kind == Kind.WEIGHT.name and entry.error is None:
        return (entry.kind, entry.rank, entry.direction)
    return (entry.index,)


def _line(alike: Sequence[Entry]) -> str:
    first, last = alike[0], alike[-1]
    arrow = ">" if first.direction == SEND else "<"
    if first.kind is None:
        return f"{arrow} {first.rank} nothing in {first.state}: {first.error}"
    what = first.kind
    if len(alike) > 1:
        what += f" x {len(alike)} {first.tensor} .. {last.tensor}"
    elif first.tensor is not None:
        what += f" {first.tensor} {list(first.shape or ())}"
    sequences = f"{first.sequence}" if first is last else f"{first.sequence}..{last.sequence}"
    text = f"{arrow} {first.rank} {what} e{first.epoch} s{sequences} in {first.state}"
    return text if last.error is None else f"{text}: {last.error}"
