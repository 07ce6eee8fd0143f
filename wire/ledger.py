"""The ledger (docs/spec/session.md S12, S14): one JSON line per frame or failed wait of a run.

Nothing in a ledger depends on time, process ids, ports or paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Final, NamedTuple

from errors import EvidenceError
from wire.frame import Kind
from wire.limits import DIMENSIONS_MAX, HEADER_BYTES, RANK_MAX, STRING_CHARACTERS_MAX
from wire.session import State

SEND: Final = "send"
RECEIVE: Final = "receive"
# Bounds what a reader of a foreign ledger holds of one line.
LINE_BYTES_MAX: Final = 8192


@dataclass(frozen=True, slots=True)
class Entry:
    """One ledger line; the keys of S12 in the order in which S12 explains them."""

    index: int
    direction: str
    rank: int
    kind: str | None
    flags: int | None
    epoch: int | None
    sequence: int | None
    state: str
    phase: str
    tensor: str | None
    shape: tuple[int, ...] | None
    metadata_bytes: int | None
    payload_bytes: int | None
    checksum: int | None
    payload_sha256: str | None
    error: str | None

    def to_line(self) -> bytes:
        """The canonical line, with its line feed.

        Header fields stand as announced, so a refused epoch or sequence may reach 2^64 - 1.
        """
        text = json.dumps(
            {field.name: getattr(self, field.name) for field in fields(self)},
            sort_keys=True,
            separators=(",", ":"),
        )
        return text.encode("ascii") + b"\n"


class Totals(NamedTuple):
    """S14."""

    payload_bytes: int
    header_bytes: int
    metadata_bytes: int


def totals(entries: Iterable[Entry]) -> Totals:
    """The accounting of a ledger (S14)."""
    payload = headers = metadata = 0
    for entry in entries:
        payload += entry.payload_bytes or 0
        headers += entry.flags is not None
        metadata += entry.metadata_bytes or 0
    return Totals(payload, headers * HEADER_BYTES, metadata)


def read_ledger(data: bytes) -> list[Entry]:
    """The entries of a ledger file; EvidenceError ledger when a line breaks S12."""
    if data and not data.endswith(b"\n"):
        raise EvidenceError("ledger", "the last line has no line feed")
    return [parse_line(line + b"\n", at) for at, line in enumerate(data.split(b"\n")[:-1])]


def parse_line(line: bytes, index: int) -> Entry:
    """The entry that `line` (with its line feed) spells, which must stand at `index`."""
    if len(line) > LINE_BYTES_MAX:
        raise EvidenceError("ledger", f"line {index}: longer than {LINE_BYTES_MAX} bytes")
    try:
        value = json.loads(line.decode("ascii"))
    except (ValueError, RecursionError):
        raise EvidenceError("ledger", f"line {index}: not ASCII JSON") from None
    if type(value) is not dict or value.keys() != _RULES.keys():
        raise EvidenceError("ledger", f"line {index}: the keys are not those of S12")
    for key, item in value.items():
        if not _RULES[key](item):
            raise EvidenceError("ledger", f"line {index}: {key} = {str(item)[:80]}: breaks S12")
    if value["index"] != index:
        raise EvidenceError("ledger", f"line {index}: index = {value['index']}: not its position")
    if value["shape"] is not None:
        value["shape"] = tuple(value["shape"])
    entry = Entry(**value)
    if entry.to_line() != line:
        raise EvidenceError("ledger", f"line {index}: not in canonical spelling")
    return entry


def _is_unsigned(bits: int) -> Callable[[object], bool]:
    def accepts(value: object) -> bool:
        return value is None or (type(value) is int and 0 <= value < 2**bits)

    return accepts


def _is_text(value: object) -> bool:
    return type(value) is str and len(value) <= STRING_CHARACTERS_MAX


def _is_text_or_null(value: object) -> bool:
    return value is None or _is_text(value)


def _is_shape_or_null(value: object) -> bool:
    return value is None or (
        isinstance(value, list)
        and 1 <= len(value) <= DIMENSIONS_MAX
        and all(type(length) is int and 0 <= length < 2**53 for length in value)
    )


def _is_digest_or_null(value: object) -> bool:
    return value is None or (type(value) is str and bool(re.fullmatch("[0-9a-f]{64}", value)))


def _is_one_of(names: frozenset[str]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and value in names


_is_kind: Final = _is_one_of(frozenset(kind.name for kind in Kind))
_RULES: Final[dict[str, Callable[[object], bool]]] = {
    "index": lambda value: type(value) is int and value >= 0,
    "direction": _is_one_of(frozenset({SEND, RECEIVE})),
    "rank": lambda value: type(value) is int and 0 <= value <= RANK_MAX,
    "kind": lambda value: value is None or _is_kind(value),
    "flags": _is_unsigned(16),
    "epoch": _is_unsigned(64),
    "sequence": _is_unsigned(64),
    "state": _is_one_of(frozenset(state.name for state in State)),
    "phase": _is_text,
    "tensor": _is_text_or_null,
    "shape": _is_shape_or_null,
    "metadata_bytes": _is_unsigned(32),
    "payload_bytes": _is_unsigned(32),
    "checksum": _is_unsigned(32),
    "payload_sha256": _is_digest_or_null,
    "error": _is_text_or_null,
}
