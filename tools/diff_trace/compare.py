"""The first frame in which two runs, or two ranks of one run, differ; the field and both values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from coordinator.frame_difference import NOTHING, FieldDifference, find_difference
from coordinator.taped_frame import take_apart
from errors import ConfigError
from manifest.value_rules import shown
from program.spec import LOAD_PHASE
from tools.diff_trace.frames import TracedFrame
from wire.canonical import JsonValue, spelled

# In the order that explains most: lengths and checksum only follow from what comes before them.
_WHO: Final = ("direction", "rank")
_FIELDS: Final = (
    *("kind", "flags", "epoch", "sequence", "state", "phase", "tensor", "shape"),
    *("metadata_bytes", "payload_bytes", "payload_sha256", "checksum", "error"),
)
# What a rank says of its load: its own times and memory, other ones in every run.
_OF_LOAD: Final = frozenset({"metadata_bytes", "checksum"})
# Of two ranks: who they are and what is only theirs.
_OF_RANK: Final = frozenset({"rank", "metadata_bytes", "checksum"})
_KEYS_OF_RANK: Final = frozenset({"rank", "parameters", "report", "shape"})
_SLICED: Final = frozenset({"WEIGHT", "PARTIAL"})
_SHARED: Final = frozenset({"INPUT", "REDUCTION"})
_DIGESTS: Final = ("plan_digest", "state_digest", "hidden_digest")

Judge = Callable[[TracedFrame, TracedFrame], FieldDifference | None]


@dataclass(frozen=True)
class Difference:
    """left, right: the two frames, one of them None where it is missing."""

    left: TracedFrame | None
    right: TracedFrame | None
    what: FieldDifference


@dataclass(frozen=True)
class Comparison:
    """frames: how many pairs were compared, the differing one included."""

    frames: int
    difference: Difference | None


def compare_runs(left: Sequence[TracedFrame], right: Sequence[TracedFrame]) -> Comparison:
    """Frames are paired by their place in the run: a trace may begin late, or have gaps.

    Raises ConfigError when no place is in both.
    """
    ours = {frame.place: frame for frame in left}
    theirs = {frame.place: frame for frame in right}
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        rule = "must have a frame in common: no frame of one is at a place that the other has"
        raise ConfigError.single("inputs", f"{len(left)} and {len(right)} frames", rule)
    pairs = [(ours[place], theirs[place]) for place in common]
    found = _first(pairs, _run_difference)
    ends = [max(frames) for frames in (ours, theirs)]
    if found.difference is None and ends[0] != ends[1]:
        longer = ours if ends[0] > ends[1] else theirs
        extra = longer[min(place for place in longer if place > min(ends))]
        return Comparison(found.frames + 1, _missing(extra, is_left=longer is ours))
    return found


def compare_ranks(frames: Sequence[TracedFrame], ranks: tuple[int, int]) -> Comparison:
    """The conversations with two ranks, frame by frame, in what they must have in common.

    Not compared: their rank, their slices and partials, and what they say of their load.
    Raises ConfigError when there is no frame of one of them.
    """
    sides = [[frame for frame in frames if frame.entry.rank == rank] for rank in ranks]
    for rank, side in zip(ranks, sides, strict=True):
        if not side:
            raise ConfigError.single("--ranks", rank, "must be a rank that has frames here")
    left, right = sides
    found = _first(list(zip(left, right, strict=False)), _rank_difference)
    if found.difference is None and len(left) != len(right):
        longer = left if len(left) > len(right) else right
        extra = longer[min(len(left), len(right))]
        return Comparison(found.frames + 1, _missing(extra, is_left=longer is left))
    return found


def _first(pairs: Sequence[tuple[TracedFrame, TracedFrame]], judge: Judge) -> Comparison:
    for count, (left, right) in enumerate(pairs, 1):
        what = judge(left, right)
        if what is not None:
            return Comparison(count, Difference(left, right, what))
    return Comparison(len(pairs), None)


def _missing(frame: TracedFrame, *, is_left: bool) -> Difference:
    there = f"{frame.entry.kind or 'a failed wait'} of rank {frame.entry.rank}"
    if is_left:
        return Difference(frame, None, FieldDifference("frame", there, NOTHING))
    return Difference(None, frame, FieldDifference("frame", NOTHING, there))


def _run_difference(left: TracedFrame, right: TracedFrame) -> FieldDifference | None:
    found = _entry_difference(left, right, _WHO, frozenset())
    is_load = left.entry.kind == right.entry.kind == "FENCE" and left.entry.phase == LOAD_PHASE
    if found is None and left.raw is not None and right.raw is not None and not is_load:
        found = find_difference(left.raw, right.raw)
    return found or _entry_difference(left, right, _FIELDS, _OF_LOAD if is_load else frozenset())


def _rank_difference(left: TracedFrame, right: TracedFrame) -> FieldDifference | None:
    kind = left.entry.kind
    skipped = set(_OF_RANK)
    if kind not in _SHARED:
        skipped |= {"payload_sha256", "payload_bytes", "shape"}
    found = _entry_difference(left, right, ("direction", *_FIELDS), frozenset(skipped))
    if found is not None or left.raw is None or right.raw is None or kind in _SLICED:
        return found
    return _common_metadata(left.raw, right.raw)


def _common_metadata(left: bytes, right: bytes) -> FieldDifference | None:
    """Of two ranks' frames; and where both report a step, the digests that must be equal."""
    ours, theirs = (take_apart(raw).metadata_fields() or {} for raw in (left, right))
    for key in sorted((ours.keys() | theirs.keys()) - _KEYS_OF_RANK):
        values = [_spelled(one.get(key)) for one in (ours, theirs)]
        if values[0] != values[1]:
            return FieldDifference(f"metadata {shown(key)}", *values)
    reports = [one.get("report") for one in (ours, theirs)]
    for key in _DIGESTS:
        values = [_spelled(one.get(key) if isinstance(one, dict) else None) for one in reports]
        if values[0] != values[1]:
            return FieldDifference(f"metadata report {key}", *values)
    return None


def _spelled(value: JsonValue) -> str:
    return shown(spelled(value))


def _entry_difference(
    left: TracedFrame, right: TracedFrame, names: Sequence[str], skipped: frozenset[str]
) -> FieldDifference | None:
    for name in names:
        if name in skipped or (name == "payload_sha256" and not _both_digests(left, right)):
            continue
        values = getattr(left.entry, name), getattr(right.entry, name)
        if values[0] != values[1]:
            return FieldDifference(name, *map(_said, values))
    return None


def _said(value: object) -> str:
    return NOTHING if value is None else shown(value)


def _both_digests(left: TracedFrame, right: TracedFrame) -> bool:
    return left.has_digest and right.has_digest
