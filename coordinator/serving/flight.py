"""The flight recorder: what happened just before a group failed, in one file of JSON lines.

docs/spec/http.md H46. The failure, what existed, the last steps with their frames, and where every
thread was. Payloads are in it as far as they fit, the newest first, so it holds what clients sent:
mode 0600, and never over a file that exists.
"""

from __future__ import annotations

import errno
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from coordinator.engine import EngineSnapshot, Failure
from coordinator.service_state import failure_json, state_json
from coordinator.serving.bounded_file import BoundedFile
from coordinator.serving.stacks import thread_stacks
from coordinator.serving.step_view import span_json, summary_json
from coordinator.serving.trace_jsonl import frame_json, json_line
from coordinator.step_timing import ObservedStep
from errors import ConfigError
from wire.frame import TENSOR_KINDS
from wire.recorder import Record, Recorder

VERSION: Final = 1
STEPS: Final = 8
PAYLOAD_BYTES_MAX: Final = 8 << 20
FILE_BYTES_MAX: Final = 64 << 20
# Of one epoch: a folder may be that of many services.
_NAMES_MAX: Final = 1000


@dataclass(frozen=True)
class Crash:
    """What is known of a failed group. snapshot: None when it failed while it loaded."""

    epoch: int
    world_size: int
    program: str
    source: str
    failure: Failure
    snapshot: EngineSnapshot | None
    steps: tuple[ObservedStep, ...]
    origin: float


class FlightRecorder:
    """directory: made if it is missing. Raises ConfigError when it can't be a writable folder."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            probe = directory / f".flight-{id(self)}"
            probe.touch(mode=0o600)
            probe.unlink()
        except OSError as failure:
            rule = f"must be a folder that can be written: {failure.strerror}"
            raise ConfigError.single("--dump-dir", directory, rule) from None

    def dump(self, crash: Crash, recorder: Recorder) -> Path | None:
        """The file, or None when it could not be written whole; then what fits is there.

        Called by the thread that the recorder is of, or after it has ended.
        """
        file = self._created(crash.epoch)
        if file is None:
            return None
        try:
            for line in flight_lines(crash, recorder):
                if not file.append(line):
                    return None
        finally:
            file.close()
        return file.path

    def _created(self, epoch: int) -> BoundedFile | None:
        for number in range(1, _NAMES_MAX):
            name = f"flight-{epoch}.jsonl" if number == 1 else f"flight-{epoch}-{number}.jsonl"
            try:
                return BoundedFile(self._directory / name, FILE_BYTES_MAX, exclusive=True)
            except OSError as failure:
                if failure.errno != errno.EEXIST:
                    return None
        return None


def flight_lines(crash: Crash, recorder: Recorder) -> Iterator[bytes]:
    """The lines of the file, the last one of type `end`: without it the file is not whole."""
    steps = crash.steps[-STEPS:]
    count = 0
    for value in _values(crash, steps, recorder):
        count += 1
        yield json_line(value)
    yield json_line({"type": "end", "lines": count})


def _values(
    crash: Crash, steps: tuple[ObservedStep, ...], recorder: Recorder
) -> Iterator[dict[str, object]]:
    yield {
        "type": "flight",
        "version": VERSION,
        "group_epoch": crash.epoch,
        "world_size": crash.world_size,
        "program": crash.program,
        "source": crash.source,
    }
    yield {"type": "failure", **failure_json(crash.failure)}
    yield {"type": "state", "state": None if crash.snapshot is None else state_json(crash.snapshot)}
    for step in steps:
        spans = [span_json(span, step.start) for span in step.spans()]
        yield {"type": "step", **summary_json(step, crash.origin), "spans": spans}
    yield from _frames(steps, recorder)
    for stack in thread_stacks():
        yield {"type": "thread", **stack}


def _frames(steps: tuple[ObservedStep, ...], recorder: Recorder) -> Iterator[dict[str, object]]:
    """Those of the steps, and what came after them; without steps all that is known."""
    first = steps[0].first_frame if steps else 0
    records = recorder.since(first)
    start = recorder.frames - len(records)
    shown = _with_payload(records)
    for at, record in enumerate(records):
        index = start + at
        yield {
            "type": "frame",
            "step": _step_of(index, steps),
            **frame_json(index, record),
            "payload_sha256": _digest(record),
            "metadata": None if record.metadata is None else record.metadata.decode("ascii"),
            "payload": b64encode(record.payload).decode("ascii") if at >= shown else None,
        }


def _step_of(index: int, steps: tuple[ObservedStep, ...]) -> int | None:
    for step in reversed(steps):
        if index >= step.first_frame:
            inside = index < step.first_frame + max(1, len(step.records))
            return step.plan.step if inside else None
    return None


def _with_payload(records: tuple[Record, ...]) -> int:
    """From which record on all payloads fit."""
    left = PAYLOAD_BYTES_MAX
    for at in range(len(records) - 1, -1, -1):
        left -= len(records[at].payload)
        if left < 0:
            return at + 1
    return 0


def _digest(record: Record) -> str | None:
    """As the ledger has it: of a tensor frame that was sent or accepted."""
    header = record.header
    if header is None or header.kind not in TENSOR_KINDS or record.error is not None:
        return None
    return sha256(record.payload).hexdigest()
