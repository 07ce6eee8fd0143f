"""A recorded run written down again as a step trace and as a flight file; for tests.

The server's own writers can't be imported here. That their frames have the keys of these is tested
beside them: coordinator/serving/trace_writer_test.py, observation_test.py.
"""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

from coordinator.taped_frame import take_apart
from tools.diff_trace.frames import read_frames

STEPS: Final = 2


def trace_lines(run: Path) -> list[dict[str, Any]]:
    """The frames as those of two steps of one group."""
    frames = [dict(_entry(frame.entry)) for frame in read_frames(run)]
    for frame in frames:
        del frame["payload_sha256"]
    half = len(frames) // STEPS
    parts = (frames[:half], frames[half:])
    return [
        {"type": "step", "version": 1, "group_epoch": 1, "step": at, "frames": part}
        for at, part in enumerate(parts)
    ]


def flight_lines(run: Path) -> list[dict[str, Any]]:
    """All of it, with metadata and payloads."""
    lines: list[dict[str, Any]] = [{"type": "flight", "version": 1}]
    for frame in read_frames(run):
        parts = take_apart(frame.raw or b"")
        line = {"type": "frame", "step": 0, **_entry(frame.entry)}
        line["metadata"] = parts.metadata.decode("ascii")
        line["payload"] = b64encode(parts.payload).decode("ascii")
        lines.append(line)
    return [*lines, {"type": "end", "lines": len(lines)}]


def _entry(entry: Any) -> dict[str, Any]:
    found = json.loads(entry.to_line())
    assert isinstance(found, dict)
    return found
