"""The step trace: one line of JSON per step, with its frames (docs/spec/http.md H45).

It tells what travelled, as headers and checksums say, and how long it took; payloads it doesn't
hold. `diff_trace` compares two of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from coordinator.serving.bounded_file import BoundedFile
from coordinator.serving.step_view import summary_json
from coordinator.step_timing import ObservedStep
from wire.recorder import Record, entry

TRACE_BYTES_MAX: Final = 64 << 20
VERSION: Final = 1
# Of the ledger's keys, those that say what a frame was; its digest costs too much for every step.
FRAME_KEYS: Final = (
    *("index", "direction", "rank", "kind", "flags", "epoch", "sequence", "state", "phase"),
    *("tensor", "shape", "metadata_bytes", "payload_bytes", "checksum", "error"),
)


class StepTrace:
    """Implements `TraceFile`. Full, the file is renamed to PATH.1 and a new one begins.

    origin: where `at_s` counts from.
    """

    sink = "trace"

    def __init__(self, path: Path, origin: float, bytes_max: int = TRACE_BYTES_MAX) -> None:
        self._file = BoundedFile.named(path, bytes_max, "--trace")
        self._origin = origin

    def write(self, epoch: int, step: ObservedStep) -> bool:
        """See `TraceFile.write`."""
        line = json_line(trace_json(epoch, step, self._origin))
        if len(line) > self._file.bytes_max:
            return False
        if not self._file.fits(len(line)) and not self._file.rotate():
            return False
        return self._file.append(line)

    def close(self) -> None:
        """See `TraceFile.close`."""
        self._file.close()


def trace_json(epoch: int, step: ObservedStep, origin: float) -> dict[str, object]:
    """One line. epoch: in which the step's group began; frames: as far as they were kept."""
    failure = step.failure
    return {
        "type": "step",
        "version": VERSION,
        "group_epoch": epoch,
        **summary_json(step, origin),
        "failure": None if failure is None else failure.code,
        "frames": [
            frame_json(step.first_frame + at, record) for at, record in enumerate(step.records)
        ],
    }


def frame_json(index: int, record: Record) -> dict[str, object]:
    """A frame by its header and metadata."""
    described = entry(index, record, with_digest=False)
    return {key: getattr(described, key) for key in FRAME_KEYS}


def json_line(value: Mapping[str, object]) -> bytes:
    """Strict JSON, ASCII, with a line feed."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii") + b"\n"
