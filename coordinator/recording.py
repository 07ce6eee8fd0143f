"""A run's folder, read back: bounded, strict, its files held against each other.

Everything that is wrong with the files is one ConfigError that names the file. It must not know
what its readers do with the frames.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from coordinator.run_files import LEDGER, MANIFEST, OUTPUT, TAPE
from coordinator.taped_frame import RawHeader, take_apart
from errors import ConfigError, EvidenceError
from manifest.json_form import JSON_BYTES_MAX
from manifest.run_manifest import RunManifest, read_json
from manifest.value_rules import shown
from wire.frame import Side
from wire.ledger import SEND, Entry, read_ledger
from wire.limits import PAYLOAD_BYTES_MAX
from wire.tape import TapeRecord, read_tape

# A run of the largest block is 76 frames and 50 MB; these bound what a foreign folder can cost.
LEDGER_BYTES_MAX: Final = 64 << 20
TAPE_BYTES_MAX: Final = 256 << 20


@dataclass(frozen=True)
class Recording:
    """entries[i] describes tape[i]. output: None when the run left none."""

    manifest: RunManifest
    entries: list[Entry]
    tape: list[TapeRecord]
    output: bytes | None

    @property
    def failed(self) -> bool:
        """Whether the run ended with a refused frame or a failed wait."""
        return bool(self.entries) and self.entries[-1].error is not None


def read_recording(directory: Path) -> Recording:
    """The run recorded in `directory`. Raises ConfigError for anything that no run wrote."""
    if not directory.is_dir():
        raise ConfigError.single("DIR", shown(directory), "must be the folder of a run")
    manifest = read_json(_read(directory / MANIFEST, JSON_BYTES_MAX))
    try:
        entries = read_ledger(_read(directory / LEDGER, LEDGER_BYTES_MAX))
        tape = read_tape(_read(directory / TAPE, TAPE_BYTES_MAX))
    except EvidenceError as finding:
        name = LEDGER if finding.check == "ledger" else TAPE
        raise ConfigError.single(name, shown(directory / name), shown(finding.message)) from None
    output = None
    if (directory / OUTPUT).exists():
        output = _read(directory / OUTPUT, PAYLOAD_BYTES_MAX)
    _check_agreement(entries, tape)
    return Recording(manifest, entries, tape, output)


def _read(path: Path, bytes_max: int) -> bytes:
    try:
        if path.exists() and not path.is_file():
            raise ConfigError.single(path.name, shown(path), "must be a regular file")
        with path.open("rb") as file:
            data = file.read(bytes_max + 1)
    except OSError as failure:
        rule = f"can't be read: {failure.strerror}"
        raise ConfigError.single(path.name, shown(path), rule) from None
    if len(data) > bytes_max:
        raise ConfigError.single(path.name, shown(path), f"must have at most {bytes_max} bytes")
    return data


def _check_agreement(entries: list[Entry], tape: list[TapeRecord]) -> None:
    """S12 and S13 describe the same frames; a folder put together from two runs is refused."""
    if len(entries) != len(tape):
        rule = f"must have as many records as {LEDGER} has lines, {len(entries)}"
        raise ConfigError.single(TAPE, f"{len(tape)} records", rule)
    for entry, record in zip(entries, tape, strict=True):
        if not _agree(entry, record):
            rule = f"must be the frame that {LEDGER} describes"
            raise ConfigError.single(TAPE, f"record {entry.index}", rule)


def _agree(entry: Entry, record: TapeRecord) -> bool:
    sender = Side.COORDINATOR if entry.direction == SEND else Side.WORKER
    if (sender, entry.rank) != (record.sender, record.rank):
        return False
    if entry.flags is None:
        return entry.error is not None
    frame = take_apart(record.raw)
    if frame.header is None or not _describes(entry, frame.header):
        return False
    digest = entry.payload_sha256
    return digest is None or digest == sha256(frame.payload).hexdigest()


def _describes(entry: Entry, header: RawHeader) -> bool:
    return (
        entry.kind == header.kind_name
        and entry.flags == header.flags
        and entry.epoch == header.epoch
        and entry.sequence == header.sequence
        and entry.metadata_bytes == header.metadata_bytes
        and entry.payload_bytes == header.payload_bytes
        and entry.checksum == header.checksum
    )
