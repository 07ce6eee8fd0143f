"""A trace has a line for each frame, one for the weights of a rank, and says what was refused."""

from __future__ import annotations

from dataclasses import replace

from simulation.trace import trace_lines
from wire.ledger import Entry

WEIGHT = Entry(
    index=0,
    direction="send",
    rank=1,
    kind="WEIGHT",
    flags=0,
    epoch=2,
    sequence=1,
    state="LOADING",
    phase="load",
    tensor="wq",
    shape=(4, 16),
    metadata_bytes=1,
    payload_bytes=256,
    checksum=0,
    payload_sha256=None,
    error=None,
)


def test_weights_of_a_rank_are_told_together() -> None:
    entries = [
        WEIGHT,
        replace(WEIGHT, index=1, sequence=2, tensor="wk"),
        replace(WEIGHT, index=2, rank=2),
    ]
    assert list(trace_lines(entries)) == [
        "> 1 WEIGHT x 2 wq .. wk e2 s1..2 in LOADING",
        "> 2 WEIGHT wq [4, 16] e2 s1 in LOADING",
    ]


def test_a_refused_frame_and_a_failed_wait() -> None:
    refused = replace(
        WEIGHT, kind="FENCE", direction="receive", tensor=None, shape=None, error="contract.fence"
    )
    nothing = replace(
        refused, index=1, kind=None, epoch=None, sequence=None, error="deadline.receive"
    )
    assert list(trace_lines([refused, nothing])) == [
        "< 1 FENCE e2 s1 in LOADING: contract.fence",
        "< 1 nothing in LOADING: deadline.receive",
    ]
