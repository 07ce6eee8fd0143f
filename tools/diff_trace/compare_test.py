"""A planted difference of every field is found, in the frame where it was planted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from coordinator.fake_rank import record_run
from coordinator.run_files import RunFiles
from errors import ConfigError
from manifest.run_manifest import from_flags
from tools.diff_trace.compare import compare_ranks, compare_runs
from tools.diff_trace.frames import TracedFrame, read_frames
from wire.checksum import crc32
from wire.frame import Header, Kind
from wire.limits import HEADER, HEADER_BYTES

MANIFEST = from_flags({"ranks": "2", "batch": "1", "sequence": "2", "seed": "3"})


@pytest.fixture(scope="module")
def frames(tmp_path_factory: pytest.TempPathFactory) -> list[TracedFrame]:
    folder = tmp_path_factory.mktemp("run") / "run"
    record_run(MANIFEST, RunFiles(folder))
    return read_frames(folder)


@pytest.fixture(scope="module")
def partial(frames: list[TracedFrame]) -> int:
    return next(
        at for at, one in enumerate(frames) if (one.entry.kind, one.entry.rank) == ("PARTIAL", 1)
    )


def with_frame(frames: list[TracedFrame], at: int, frame: TracedFrame) -> list[TracedFrame]:
    return [*frames[:at], frame, *frames[at + 1 :]]


def bare(frames: list[TracedFrame]) -> list[TracedFrame]:
    """As a ledger has them: without bytes."""
    return [replace(frame, raw=None) for frame in frames]


def rewritten(frame: TracedFrame, **changed: Any) -> TracedFrame:
    """The frame with another header field, metadata or payload, and a checksum that fits."""
    raw = frame.raw or b""
    fields = HEADER.unpack_from(raw)
    header = Header(Kind(fields[2]), *fields[3:])
    metadata = raw[HEADER_BYTES : HEADER_BYTES + header.metadata_bytes]
    payload = raw[HEADER_BYTES + header.metadata_bytes :]
    metadata, payload = changed.pop("metadata", metadata), changed.pop("payload", payload)
    header = header._replace(
        metadata_bytes=len(metadata),
        payload_bytes=len(payload),
        checksum=changed.pop("checksum", crc32(payload, crc32(metadata))),
        **changed,
    )
    entry = replace(
        frame.entry,
        kind=header.kind.name,
        flags=header.flags,
        epoch=header.epoch,
        sequence=header.sequence,
        metadata_bytes=header.metadata_bytes,
        payload_bytes=header.payload_bytes,
        checksum=header.checksum,
    )
    return replace(frame, entry=entry, raw=header.to_bytes() + metadata + payload)


def metadata_of(frame: TracedFrame, **changed: object) -> bytes:
    raw = frame.raw or b""
    size = HEADER.unpack_from(raw)[6]
    value = json.loads(raw[HEADER_BYTES : HEADER_BYTES + size]) | changed
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def payload_with(frame: TracedFrame, element: int) -> bytes:
    payload = bytearray((frame.raw or b"")[-(frame.entry.payload_bytes or 0) :])
    payload[4 * element + 3] ^= 0x80
    return bytes(payload)


# The name of the field, and the frame with another value of it.
PLANTED: dict[str, Callable[[TracedFrame], TracedFrame]] = {
    "kind": lambda frame: rewritten(frame, kind=Kind.RESULT),
    "flags": lambda frame: rewritten(frame, flags=1),
    "epoch": lambda frame: rewritten(frame, epoch=99),
    "sequence": lambda frame: rewritten(frame, sequence=99),
    "checksum": lambda frame: rewritten(frame, checksum=1),
    "payload element 5": lambda frame: rewritten(frame, payload=payload_with(frame, 5)),
    "metadata tensor": lambda frame: rewritten(frame, metadata=metadata_of(frame, tensor="other")),
    "metadata phase": lambda frame: rewritten(frame, metadata=metadata_of(frame, phase="other")),
    "metadata more": lambda frame: rewritten(frame, metadata=metadata_of(frame, more=1)),
    "state": lambda frame: replace(frame, entry=replace(frame.entry, state="IDLE")),
    "phase": lambda frame: replace(frame, entry=replace(frame.entry, phase="other")),
    "error": lambda frame: replace(frame, entry=replace(frame.entry, error="contract.kind")),
    "direction": lambda frame: replace(frame, entry=replace(frame.entry, direction="send")),
    "rank": lambda frame: replace(frame, entry=replace(frame.entry, rank=0)),
}


@pytest.mark.parametrize("field", PLANTED)
def test_a_planted_difference_with_bytes(
    frames: list[TracedFrame], partial: int, field: str
) -> None:
    other = with_frame(frames, partial, PLANTED[field](frames[partial]))
    for left, right in ((frames, other), (other, frames)):
        found = compare_runs(left, right)
        assert found.difference is not None
        assert found.difference.what.field == field
        assert found.difference.left == left[partial]
        assert found.difference.right == right[partial]
        assert found.difference.what.taped != found.difference.what.replayed
        assert found.frames == partial + 1


# Of a ledger's line, and another value for it.
LEDGER_FIELDS: dict[str, object] = {
    "direction": "send",
    "rank": 0,
    "kind": "RESULT",
    "flags": 1,
    "epoch": 99,
    "sequence": 99,
    "state": "IDLE",
    "phase": "other",
    "tensor": "other",
    "shape": (7,),
    "metadata_bytes": 1,
    "payload_bytes": 1,
    "payload_sha256": "0" * 64,
    "checksum": 1,
    "error": "contract.kind",
}


@pytest.mark.parametrize("field", LEDGER_FIELDS)
def test_a_planted_difference_between_ledgers(
    frames: list[TracedFrame], partial: int, field: str
) -> None:
    ledger = bare(frames)
    changed: dict[str, Any] = {field: LEDGER_FIELDS[field]}
    entry = replace(ledger[partial].entry, **changed)
    found = compare_runs(ledger, with_frame(ledger, partial, replace(ledger[partial], entry=entry)))
    assert found.difference is not None
    assert found.difference.what.field == field
    assert found.difference.left is ledger[partial]


def test_the_same(frames: list[TracedFrame]) -> None:
    for run in (frames, bare(frames)):
        found = compare_runs(run, list(run))
        assert (found.frames, found.difference) == (len(frames), None)


def test_a_ledger_against_its_run(frames: list[TracedFrame]) -> None:
    assert compare_runs(frames, bare(frames)).difference is None


@pytest.mark.parametrize("cut", [1, 5])
def test_missing_frames_at_the_end(frames: list[TracedFrame], cut: int) -> None:
    for left, right in ((frames, frames[:-cut]), (frames[:-cut], frames)):
        found = compare_runs(left, right)
        assert found.difference is not None
        assert found.difference.what.field == "frame"
        missing = [found.difference.left, found.difference.right].index(None)
        assert missing == (0 if left is not frames else 1)
        assert found.frames == len(frames) - cut + 1


def renumbered(frames: list[TracedFrame]) -> list[TracedFrame]:
    return [replace(frame, entry=replace(frame.entry, index=at)) for at, frame in enumerate(frames)]


def test_a_missing_frame_in_the_middle(frames: list[TracedFrame], partial: int) -> None:
    found = compare_runs(frames, renumbered(frames[:partial] + frames[partial + 1 :]))
    assert found.difference is not None
    assert found.difference.left is frames[partial]


def test_another_order_of_ranks(frames: list[TracedFrame], partial: int) -> None:
    """Rank 1 before rank 0: the frames themselves are the same."""
    first = max(
        at
        for at in range(partial)
        if frames[at].entry.rank == 0 and frames[at].entry.kind == "PARTIAL"
    )
    swapped = list(frames)
    swapped[first], swapped[partial] = swapped[partial], swapped[first]
    found = compare_runs(frames, renumbered(swapped))
    assert found.difference is not None
    assert (found.difference.what.field, found.difference.left) == ("rank", frames[first])


def test_a_trace_that_begins_late_is_compared_where_both_have_frames(
    frames: list[TracedFrame], partial: int
) -> None:
    late = frames[partial - 2 :]
    assert compare_runs(frames, late).frames == len(late)
    assert compare_runs(frames, late).difference is None
    other = with_frame(frames, partial, PLANTED["epoch"](frames[partial]))
    found = compare_runs(late, other)
    assert found.difference is not None
    assert found.difference.right == other[partial]


def test_runs_without_a_frame_in_common(frames: list[TracedFrame]) -> None:
    with pytest.raises(ConfigError):
        compare_runs(frames[:5], frames[5:])
    with pytest.raises(ConfigError):
        compare_runs([], frames)


def test_groups_of_a_service_are_not_mixed_up(frames: list[TracedFrame], partial: int) -> None:
    again = [replace(frame, group=1) for frame in frames]
    other = with_frame(again, partial, PLANTED["epoch"](again[partial]))
    found = compare_runs([*frames, *again], [*frames, *other])
    assert found.difference is not None
    assert found.difference.left == again[partial]
    assert found.frames == len(frames) + partial + 1


def test_the_load_report_s_own_numbers_are_no_difference(frames: list[TracedFrame]) -> None:
    at = next(at for at, frame in enumerate(frames) if frame.entry.kind == "FENCE")
    loaded = replace(frames[at], entry=replace(frames[at].entry, phase="load"))
    ours = with_frame(frames, at, loaded)
    slower = rewritten(loaded, metadata=metadata_of(loaded, report={"seconds": 2}))
    assert compare_runs(ours, with_frame(ours, at, slower)).difference is None
    assert compare_runs(frames, with_frame(frames, at, slower)).difference is not None


def test_two_ranks_of_a_sound_run(frames: list[TracedFrame]) -> None:
    for run in (frames, bare(frames)):
        found = compare_ranks(run, (0, 1))
        assert found.difference is None
        assert found.frames == len(frames) // 2


# What two ranks must have in common, and a frame of rank 1 in which it is another.
RANK_FIELDS: dict[str, tuple[str, Callable[[TracedFrame], TracedFrame]]] = {
    "kind": ("PARTIAL", PLANTED["kind"]),
    "epoch": ("PARTIAL", PLANTED["epoch"]),
    "sequence": ("FENCE", PLANTED["sequence"]),
    "phase": ("COMMAND", PLANTED["phase"]),
    "state": ("REDUCTION", PLANTED["state"]),
    "error": ("RESULT", PLANTED["error"]),
    "metadata phase": ("FENCE", PLANTED["metadata phase"]),
    "payload_sha256": (
        "REDUCTION",
        lambda frame: replace(frame, entry=replace(frame.entry, payload_sha256="0" * 64)),
    ),
    "metadata report state_digest": (
        "RESULT",
        lambda frame: rewritten(
            frame, metadata=metadata_of(frame, report={"state_digest": "0" * 64})
        ),
    ),
}


@pytest.mark.parametrize("field", RANK_FIELDS)
def test_two_ranks_that_differ(frames: list[TracedFrame], field: str) -> None:
    kind, plant = RANK_FIELDS[field]
    at = next(at for at, one in enumerate(frames) if (one.entry.kind, one.entry.rank) == (kind, 1))
    found = compare_ranks(with_frame(frames, at, plant(frames[at])), (0, 1))
    assert found.difference is not None
    assert found.difference.what.field == field
    assert found.difference.right is not None
    assert found.difference.right.entry.index == at


def test_a_rank_that_says_less(frames: list[TracedFrame]) -> None:
    last = max(at for at, frame in enumerate(frames) if frame.entry.rank == 1)
    found = compare_ranks(frames[:last] + frames[last + 1 :], (0, 1))
    assert found.difference is not None
    assert (found.difference.what.field, found.difference.right) == ("frame", None)


def test_a_rank_without_frames(frames: list[TracedFrame]) -> None:
    with pytest.raises(ConfigError):
        compare_ranks(frames, (0, 7))
