"""Alterations of one tape: each changes one thing and what must follow from it."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

from coordinator.reduce import reduce_partials
from evidence.tampering.taped import (
    Taped,
    metadata_of,
    nudged,
    payload_of,
    places,
    with_body,
    with_header,
)
from wire.frame import Kind
from wire.limits import HEADER_BYTES


def _nudge(tape: list[Taped], index: int, element: int = 0) -> None:
    tape[index] = with_body(tape[index], payload=nudged(payload_of(tape[index]), element))


def nudge_result(tape: list[Taped]) -> None:
    _nudge(tape, places(tape, Kind.RESULT)[-1])


def nudge_input(tape: list[Taped]) -> None:
    _nudge(tape, places(tape, Kind.INPUT)[-1], 7)


def nudge_total(tape: list[Taped]) -> None:
    _nudge(tape, places(tape, Kind.REDUCTION)[2], 1)


def zero_weight(tape: list[Taped]) -> None:
    index = places(tape, Kind.WEIGHT)[3]
    tape[index] = with_body(tape[index], payload=bytes(len(payload_of(tape[index]))))


def every_result(payload: bytes) -> Callable[[list[Taped]], None]:
    """Every rank's RESULT carries this payload."""

    def edit(tape: list[Taped]) -> None:
        for index in places(tape, Kind.RESULT):
            tape[index] = with_body(tape[index], payload=payload)

    return edit


def _sum_again(tape: list[Taped], stage: int, sum_order: str) -> None:
    """The totals of a stage made from its partials."""
    partials, totals = places(tape, Kind.PARTIAL), places(tape, Kind.REDUCTION)
    ranks = len(partials) // 2
    of_stage = slice(stage * ranks, (stage + 1) * ranks)
    payloads = [payload_of(tape[index]) for index in partials[of_stage]]
    total = bytes(reduce_partials(payloads, sum_order, "<f4"))
    for index in totals[of_stage]:
        tape[index] = with_body(tape[index], payload=total)


def consistent_partial(tape: list[Taped]) -> None:
    """A float of a partial, and the totals that follow from it."""
    _nudge(tape, places(tape, Kind.PARTIAL)[2])
    _sum_again(tape, 1, "rank")


def other_order(tape: list[Taped]) -> None:
    """Totals as the other sum order gives them."""
    _sum_again(tape, 0, "pairwise")


def swap_greetings(tape: list[Taped]) -> None:
    tape[0], tape[1] = tape[1], tape[0]


def swap_ranks(tape: list[Taped]) -> None:
    """Partial and fence of rank 0 after those of rank 1."""
    first, second = places(tape, Kind.PARTIAL)[:2]
    tape[first : first + 4] = [*tape[second : second + 2], *tape[first : first + 2]]


def drop_fence(tape: list[Taped]) -> None:
    del tape[places(tape, Kind.FENCE)[1]]


def skip_sequence(tape: list[Taped]) -> None:
    """The last frame has the number after its own."""
    sequence = tape[-1].entry.sequence or 0
    tape[-1] = with_header(tape[-1], sequence=sequence + 1)
    tape[-1] = _refused(tape[-1], "contract.sequence")


def _refused(taped: Taped, code: str) -> Taped:
    return Taped(taped.record, replace(taped.entry, error=code, payload_sha256=None))


def next_epoch(tape: list[Taped]) -> None:
    """All of the session in epoch 2, ACK included: legal, and not the run of the record."""
    for index, taped in enumerate(tape):
        if taped.entry.kind != Kind.HELLO.name:
            tape[index] = with_header(taped, epoch=2)


def other_step(tape: list[Taped]) -> None:
    """The last RESULT is of step 1; the ledger says that it was refused."""
    changed = with_body(tape[-1], metadata_of(tape[-1]) | {"step": 1})
    tape[-1] = _refused(changed, "contract.metadata")


def other_program(tape: list[Taped]) -> None:
    index = places(tape, Kind.ACK)[0]
    tape[index] = with_body(tape[index], metadata_of(tape[index]) | {"program": "blocks"})


def _raw(taped: Taped, raw: bytes) -> Taped:
    return Taped(taped.record._replace(raw=raw), taped.entry)


def trailing_byte(tape: list[Taped]) -> None:
    tape[-1] = _raw(tape[-1], tape[-1].record.raw + b"\0")


def _flip(taped: Taped, at: int) -> Taped:
    raw = bytearray(taped.record.raw)
    raw[at] ^= 1
    return _raw(taped, bytes(raw))


def mend_checksum(tape: list[Taped]) -> None:
    """The flipped bit is flipped back: no fault is left in the tape."""
    tape[-1] = _flip(tape[-1], -1)


def flip_first_bit(tape: list[Taped]) -> None:
    """The corruption is in another place of the payload."""
    tape[-1] = _flip(_flip(tape[-1], -1), -4)


def cut_earlier(tape: list[Taped]) -> None:
    tape[-1] = _raw(tape[-1], tape[-1].record.raw[:-1])


def older_epoch(tape: list[Taped]) -> None:
    """An epoch that is stale by more than one."""
    raw = tape[-1].record.raw
    (epoch,) = struct.unpack_from("!Q", raw, 8)
    tape[-1] = with_header(tape[-1], epoch=epoch + 2)


def late_byte(tape: list[Taped]) -> None:
    """The first byte of the frame that was held back, in time after all."""
    held = next(taped for taped in tape if taped.entry.kind == Kind.HELLO.name)
    tape[-1] = _raw(tape[-1], held.record.raw[: HEADER_BYTES - 1])
