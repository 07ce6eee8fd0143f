"""What the gates over HTTP demand of what they saw; every check is shown to fail in its test."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from coordinator.gates.http_serving import DONE
from coordinator.serving.rank_loads import look_at

# Arenas are touched at the start; what allocators keep of many requests is far less than this.
RSS_GROWTH_BYTES: Final = 24 << 20
# A pool gets a thread whenever all others are busy, to its bound.
THREADS_GROWTH: Final = 8
_SAMPLES: Final = 20
_SAMPLE_S: Final = 0.05


def demand_broken_off(events: Sequence[Any]) -> Mapping[str, Any]:
    """A stream that was ended by a failure: tokens, one error event, no [DONE]; the error."""
    errors = [event for event in events if isinstance(event, dict) and "error" in event]
    if len(errors) != 1 or events[-1] is not errors[0]:
        raise AssertionError(f"not exactly one error, at the end: {list(events[-3:])}")
    if DONE in events:
        raise AssertionError("a broken stream says that it is complete")
    reasons = [choice["finish_reason"] for event in events[:-1] for choice in event["choices"]]
    if any(reason is not None for reason in reasons):
        raise AssertionError(f"a broken stream gives a reason to finish: {reasons}")
    error: Mapping[str, Any] = errors[0]["error"]
    return error


def demand_complete(events: Sequence[Any], reason: str) -> None:
    """A stream that came to its end: one reason to finish, no error, [DONE] once and last."""
    if list(events).count(DONE) != 1 or events[-1] != DONE:
        raise AssertionError(f"not exactly one [DONE], at the end: {list(events[-3:])}")
    told = [event for event in events if event != DONE]
    if any("error" in event for event in told):
        raise AssertionError("an error in a complete stream")
    found = [choice["finish_reason"] for event in told for choice in event["choices"]]
    if [one for one in found if one is not None] != [reason]:
        raise AssertionError(f"reasons to finish: {found[-3:]}, not one {reason}")


@dataclass(frozen=True)
class Footprint:
    """Of the server and each of its ranks, in this order."""

    resident_bytes: tuple[int, ...]
    descriptors: tuple[int, ...]
    threads: tuple[int, ...]


def footprint(pids: Sequence[int]) -> Footprint:
    """What these processes take while nothing happens.

    Connections that clients have just closed are gone within a moment, so the least of it counts.
    """
    samples = []
    for _ in range(_SAMPLES):
        samples.append(_look(pids))
        time.sleep(_SAMPLE_S)
    return min(samples, key=lambda one: sum(one.descriptors))


def _look(pids: Sequence[int]) -> Footprint:
    looks = [look_at(pid) for pid in pids]
    return Footprint(
        resident_bytes=tuple(0 if look is None else look.rss_bytes for look in looks),
        descriptors=tuple(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids),
        threads=tuple(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids),
    )


def demand_flat(before: Footprint, after: Footprint) -> None:
    """Descriptors are the same; threads and resident size have grown by no more than pools do."""
    if after.descriptors != before.descriptors:
        raise AssertionError(f"descriptors: {before.descriptors}, then {after.descriptors}")
    new_threads = [new - old for old, new in zip(before.threads, after.threads, strict=True)]
    if any(growth > THREADS_GROWTH for growth in new_threads):
        raise AssertionError(f"threads: {before.threads}, then {after.threads}")
    grown = [
        new - old for old, new in zip(before.resident_bytes, after.resident_bytes, strict=True)
    ]
    if any(growth > RSS_GROWTH_BYTES for growth in grown):
        raise AssertionError(f"resident sizes have grown by {grown} bytes")
