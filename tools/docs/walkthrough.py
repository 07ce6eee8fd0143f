"""Writes docs/walkthrough.md: the nineteen frames of one rank, from a recorded run.

    walkthrough CASE_FOLDER        prints the page

The page is committed; a test generates it again from testdata/evidence and compares.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from wire.ledger import Entry, read_ledger
from wire.limits import HEADER_BYTES
from wire.tape import read_tape

RANK: Final = 0

_HEAD: Final = """\
# Walkthrough: the {count} frames of one rank

One run of the frozen block, {ranks} ranks, batch {batch}, sequence {sequence}, as the coordinator
recorded it: every frame between it and rank {rank}. The page is generated from
`testdata/evidence/cases/{case}`; what the fields mean is in [frame.md](spec/frame.md),
[metadata.md](spec/metadata.md) and [session.md](spec/session.md).

`->` goes to the worker, `<-` comes from it. The state is the session's before the frame.

| # | | kind | state | phase | epoch | sequence | metadata | payload | tensor |
|--:|:-:|---|---|---|--:|--:|--:|--:|---|
"""

_WHY: Final = {
    "HELLO": """\
The worker opens: its rank, byte order and element type. Epoch 0, because it has none yet.""",
    "ACK": """\
The coordinator names the program by its digest. Both sides derived it themselves, so equal digests
mean that every name, shape, cut and order that follows is agreed. The first epoch begins.""",
    "WEIGHT": """\
One slice of a weight: rows for column-parallel matrices, columns for row-parallel ones. The worker
demands this very metadata; anything else ends the session.""",
    "INPUT": """\
The operand, the same for every rank. It comes before the command, so that every state has one legal
sender.""",
    "COMMAND": "The phase starts.",
    "PARTIAL": """\
This rank's summand: its heads' part of the output projection, or its columns' part of the down
projection.""",
    "FENCE": "The phase's partial is complete. A second one, or a late one, would be refused.",
    "REDUCTION": """\
The sum over the ranks in the agreed order. Each rank adds it to its residual.""",
    "RESULT": """\
The block's output. The coordinator demands the same bytes from every rank; only then does an output
exist. The epoch ends.""",
}


def page(case: str, ledger: bytes, tape: bytes) -> str:
    """The whole page, from a case's ledger and tape."""
    entries = read_ledger(ledger)
    ours = [entry for entry in entries if entry.rank == RANK]
    raw = [record.raw for record in read_tape(tape) if record.rank == RANK]
    (operand,) = [entry.shape for entry in ours if entry.kind == "INPUT"]
    batch, sequence = operand[:2] if operand else (0, 0)
    head = _HEAD.format(
        count=len(ours),
        ranks=len({entry.rank for entry in entries}),
        batch=batch,
        sequence=sequence,
        rank=RANK,
        case=case,
    )
    rows = [_row(number, entry) for number, entry in enumerate(ours, 1)]
    parts = [head + "\n".join(rows), "## Frame by frame"]
    seen: set[str] = set()
    for number, (entry, data) in enumerate(zip(ours, raw, strict=True), 1):
        parts.append(_frame(number, entry, data, first=str(entry.kind) not in seen))
        seen.add(str(entry.kind))
    return "\n\n".join(parts) + "\n"


def _arrow(entry: Entry) -> str:
    return "->" if entry.direction == "send" else "<-"


def _row(number: int, entry: Entry) -> str:
    tensor = "" if entry.tensor is None else f"`{entry.tensor}` {list(entry.shape or ())}"
    cells = (
        number,
        _arrow(entry),
        entry.kind,
        entry.state,
        entry.phase,
        entry.epoch,
        entry.sequence,
        entry.metadata_bytes,
        entry.payload_bytes,
        tensor,
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def _frame(number: int, entry: Entry, data: bytes, *, first: bool) -> str:
    end = HEADER_BYTES + (entry.metadata_bytes or 0)
    metadata = data[HEADER_BYTES:end].decode("ascii")
    header = data[:HEADER_BYTES].hex(" ", 4)
    lines = [f"**{number}. {_arrow(entry)} {entry.kind}**"]
    if first:
        lines[0] += f" {_WHY[str(entry.kind)]}"
    lines += ["", "```", header, metadata]
    if entry.payload_bytes:
        lines.append(f"{entry.payload_bytes} bytes, sha256 {entry.payload_sha256}")
    lines.append("```")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    """Prints the page of one case folder."""
    folder = Path(argv[0])
    ledger, tape = folder / "ledger.jsonl", folder / "tape.bin"
    sys.stdout.write(page(folder.name, ledger.read_bytes(), tape.read_bytes()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
