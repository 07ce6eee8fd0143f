"""Steps as a Chrome trace, for Perfetto or chrome://tracing: a lane per rank, one for the sums.

The format's array form: readers take it without its end, so a killed service leaves a file that
opens. A process of the trace is one group of ranks; its lanes are threads. Times are microseconds.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from coordinator.serving.bounded_file import BoundedFile
from coordinator.step_timing import COORDINATOR, ObservedStep, Span

CHROME_BYTES_MAX: Final = 256 << 20
_BEGIN: Final = b"[\n"
_SEPARATOR: Final = b",\n"
_END: Final = b"\n]\n"


class ChromeTrace:
    """Implements `TraceFile`. A full file takes no more steps. origin: where times count from."""

    sink = "chrome_trace"

    def __init__(self, path: Path, origin: float, bytes_max: int = CHROME_BYTES_MAX) -> None:
        # The end always fits.
        self._file = BoundedFile.named(path, bytes_max - len(_END), "--chrome-trace")
        self._origin = origin
        self._groups: set[int] = set()

    def write(self, epoch: int, step: ObservedStep) -> bool:
        """See `TraceFile.write`."""
        events = list(step_events(epoch, step, self._origin))
        if epoch not in self._groups:
            events = [*lane_names(epoch, step.world_size), *events]
        text = _SEPARATOR.join(json.dumps(event, allow_nan=False).encode() for event in events)
        if not self._file.append((_SEPARATOR if self._file.size else _BEGIN) + text):
            return False
        self._groups.add(epoch)
        return True

    def close(self) -> None:
        """Add the end, so that the file is JSON without indulgence too."""
        self._file.bytes_max += len(_END)
        self._file.append(_END if self._file.size else _BEGIN + _END)
        self._file.close()


def lane_names(epoch: int, world_size: int) -> Iterator[dict[str, object]]:
    """What the viewer calls the group and its lanes, the coordinator's above those of the ranks."""
    yield _named("process_name", epoch, 0, f"group of epoch {epoch}")
    yield _named("thread_name", epoch, 0, "coordinator")
    for rank in range(world_size):
        yield _named("thread_name", epoch, 1 + rank, f"rank {rank}")


def step_events(epoch: int, step: ObservedStep, origin: float) -> Iterator[dict[str, object]]:
    """A complete event for the step on every lane, and within it one for each span."""
    told = {"rows": len(step.plan.rows), "prefill_tokens": step.prefill_tokens}
    told["decode_rows"] = step.decode_rows
    for lane in range(1 + step.world_size):
        name = f"step {step.plan.step}"
        yield _event(epoch, lane, name, "step", step.start - origin, step.end - origin, told)
    for span in step.spans():
        yield _span_event(epoch, span, origin)


def _span_event(epoch: int, span: Span, origin: float) -> dict[str, object]:
    lane = 0 if span.lane == COORDINATOR else 1 + span.lane
    start, end = span.start - origin, span.end - origin
    kind = span.kind.value
    return _event(epoch, lane, f"{kind} {span.phase}", kind, start, end, {"phase": span.phase})


def _event(
    epoch: int, lane: int, name: str, category: str, start: float, end: float, told: object
) -> dict[str, object]:
    # Nanoseconds, cut: what lies within another span does so in the file too.
    begun, ended = int(start * 1e9), int(end * 1e9)
    return {
        "name": name,
        "cat": category,
        "ph": "X",
        "pid": epoch,
        "tid": lane,
        "ts": begun / 1000,
        "dur": (ended - begun) / 1000,
        "args": told,
    }


def _named(what: str, epoch: int, lane: int, name: str) -> dict[str, object]:
    return {"name": what, "ph": "M", "pid": epoch, "tid": lane, "args": {"name": name}}
