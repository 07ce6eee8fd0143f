"""Frames of a run, wherever they were written down: a folder, a ledger, a step trace, a flight.

Every input is bounded and read strictly; what is wrong with one is a ConfigError that names it.
"""

from __future__ import annotations

import json
from base64 import b64decode
from binascii import Error as BadBase64
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, NoReturn

from coordinator.recording import LEDGER_BYTES_MAX, read_recording
from errors import ConfigError, EvidenceError
from program.strict_json import parse_object
from wire.frame import Header, Kind
from wire.ledger import Entry, parse_line, read_ledger

TRACE_BYTES_MAX: Final = 128 << 20
_VERSION: Final = 1
_KEYS: Final = tuple(field.name for field in fields(Entry))
# What a line of a step trace or a flight has beside the keys of a ledger line.
_TRACE_MISSING: Final = frozenset({"payload_sha256"})
_FLIGHT_MORE: Final = frozenset({"type", "step", "metadata", "payload"})
_FLIGHT_TYPES: Final = frozenset({"failure", "state", "step", "thread", "end"})


@dataclass(frozen=True)
class TracedFrame:
    """group: which set of ranks of one service it belongs to, from 0. entry: as in a ledger.

    raw: the whole frame, None where its bytes were not kept. has_digest: whether the entry's
    payload_sha256 tells anything. step: number of the step, where that is known.
    """

    group: int
    entry: Entry
    raw: bytes | None
    has_digest: bool
    step: int | None = None

    @property
    def place(self) -> tuple[int, int]:
        """Where it stands in its run."""
        return self.group, self.entry.index


def read_frames(path: Path) -> list[TracedFrame]:
    """In order. Raises ConfigError for anything that none of our writers wrote."""
    if path.is_dir():
        recording = read_recording(path)
        pairs = zip(recording.entries, recording.tape, strict=True)
        return [TracedFrame(0, entry, record.raw, True) for entry, record in pairs]
    data = _read(path)
    kind = _type_of_first(data, path)
    if kind == "flight":
        return list(_flight(data, path))
    if kind == "step":
        return list(_trace(data, path))
    if len(data) > LEDGER_BYTES_MAX:
        _refuse(path, f"must have at most {LEDGER_BYTES_MAX} bytes")
    try:
        return [TracedFrame(0, entry, None, True) for entry in read_ledger(data)]
    except EvidenceError as finding:
        _refuse(path, f"is no ledger, trace or flight file: {finding.message}")


def _read(path: Path) -> bytes:
    try:
        if not path.is_file():
            _refuse(path, "must be a run's folder or a regular file")
        with path.open("rb") as file:
            data = file.read(TRACE_BYTES_MAX + 1)
    except OSError as failure:
        _refuse(path, f"can't be read: {failure.strerror}")
    if len(data) > TRACE_BYTES_MAX:
        _refuse(path, f"must have at most {TRACE_BYTES_MAX} bytes")
    return data


def _type_of_first(data: bytes, path: Path) -> object:
    """What the first line says it is; None for a line that says nothing, as in a ledger."""
    line = data.partition(b"\n")[0]
    return _object(line, path, 0).get("type") if line else None


def _trace(data: bytes, path: Path) -> Iterator[TracedFrame]:
    """A service that was killed may have left half a line at the end; it is not looked at."""
    groups: dict[object, int] = {}
    for at, line in enumerate(data.split(b"\n")[:-1]):
        step = _object(line, path, at)
        if step.get("type") != "step" or step.get("version") != _VERSION:
            _refuse(path, f"line {at}: must be a step of version {_VERSION}")
        group = groups.setdefault(step.get("group_epoch"), len(groups))
        frames, number = step.get("frames"), step.get("step")
        if not isinstance(frames, list) or type(number) is not int:
            _refuse(path, f"line {at}: must have a step number and a list of frames")
        for frame in frames:
            if not isinstance(frame, dict):
                _refuse(path, f"line {at}: a frame must be an object")
            entry = _entry(frame, path, at, missing=_TRACE_MISSING)
            yield TracedFrame(group, entry, None, False, number)


def _flight(data: bytes, path: Path) -> Iterator[TracedFrame]:
    if _object(data.partition(b"\n")[0], path, 0).get("version") != _VERSION:
        _refuse(path, f"line 0: must be a flight of version {_VERSION}")
    for at, line in enumerate(data.split(b"\n")[:-1]):
        value = _object(line, path, at)
        if value.get("type") != "frame":
            if at and value.get("type") not in _FLIGHT_TYPES:
                _refuse(path, f"line {at}: {str(value.get('type'))[:40]!r} is no type of line")
            continue
        entry = _entry(value, path, at, more=_FLIGHT_MORE)
        step = value["step"]
        if step is not None and type(step) is not int:
            _refuse(path, f"line {at}: step must be a number or null")
        yield TracedFrame(0, entry, _raw(value, entry, path, at), True, step)


def _raw(value: dict[str, object], entry: Entry, path: Path, at: int) -> bytes | None:
    """The frame as it travelled; None when its payload was not kept, or it was never whole."""
    metadata, payload = value["metadata"], value["payload"]
    if metadata is None or payload is None or entry.kind is None or entry.flags is None:
        return None
    if not isinstance(metadata, str) or not isinstance(payload, str):
        _refuse(path, f"line {at}: metadata and payload must be text or null")
    try:
        parts = metadata.encode("ascii"), b64decode(payload, validate=True)
    except (BadBase64, ValueError):
        _refuse(path, f"line {at}: metadata must be ASCII and payload base64")
    header = Header(
        Kind[entry.kind],
        entry.flags,
        entry.epoch or 0,
        entry.sequence or 0,
        entry.metadata_bytes or 0,
        entry.payload_bytes or 0,
        entry.checksum or 0,
    )
    if (len(parts[0]), len(parts[1])) != (header.metadata_bytes, header.payload_bytes):
        _refuse(path, f"line {at}: metadata and payload must be as long as the frame says")
    return b"".join((header.to_bytes(), *parts))


def _entry(
    value: dict[str, object],
    path: Path,
    at: int,
    *,
    missing: frozenset[str] = frozenset(),
    more: frozenset[str] = frozenset(),
) -> Entry:
    """Judged by the rules of a ledger's line, at whatever index it stands."""
    if value.keys() != (set(_KEYS) - missing) | more:
        _refuse(path, f"line {at}: the keys of a frame are not those of its kind of file")
    spelled = {key: value.get(key) for key in _KEYS}
    line = json.dumps(spelled, sort_keys=True, separators=(",", ":")).encode("ascii") + b"\n"
    index = value["index"]
    try:
        return parse_line(line, index if type(index) is int else -1)
    except EvidenceError as finding:
        _refuse(path, f"line {at}: a frame is refused: {finding.message}")


def _object(line: bytes, path: Path, at: int) -> dict[str, object]:
    source = f"{path.name} line {at}"
    return parse_object(line, source, bytes_max=TRACE_BYTES_MAX, code="config.invalid")


def _refuse(path: Path, rule: str) -> NoReturn:
    raise ConfigError.single("input", path, rule)
