"""The form of a vector file, and the hand-made frames that fill it. Standard library only.

Nothing here imports the code under test: what a vector demands is written down, not observed.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

HEADER = struct.Struct("!4sBBHQQIII")
KINDS = (
    "HELLO",
    "ACK",
    "WEIGHT",
    "LOAD",
    "INPUT",
    "COMMAND",
    "PARTIAL",
    "FENCE",
    "REDUCTION",
    "RESULT",
)
FROM_WORKER = frozenset({"HELLO", "PARTIAL", "FENCE", "RESULT"})
TENSOR_KINDS = frozenset({"WEIGHT", "INPUT", "PARTIAL", "REDUCTION", "RESULT"})
FOLDED = 1


@dataclass(frozen=True)
class VectorFile:
    """One file: what it is about, what each flag guards against, and its vectors in order."""

    about: str
    notes: Mapping[str, str]
    vectors: Iterable[Mapping[str, Any]]
    tables: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """JSON with one vector a line, so that a change of one shows as one line."""
        head = {"about": self.about, "notes": dict(self.notes), **self.tables}
        lines = [
            f"{json.dumps(key)}: {json.dumps(value, sort_keys=True)},\n"
            for key, value in head.items()
        ]
        vectors = ",\n".join(json.dumps(vector) for vector in self.vectors)
        text = "{\n" + "".join(lines) + '"vectors": [\n' + vectors + "\n]\n}\n"
        return text.encode("ascii")


def canonical(value: object) -> bytes:
    """M1."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def frame(
    kind: str | int,
    metadata: bytes = b"{}",
    payload: bytes = b"",
    /,
    *,
    flags: int = 0,
    epoch: int = 1,
    sequence: int = 0,
    **wrong: Any,
) -> bytes:
    """The bytes of a frame (F2, F5); `wrong` replaces header fields by name."""
    number = kind if isinstance(kind, int) else KINDS.index(kind) + 1
    fields = {
        "magic": b"RKPF",
        "version": 1,
        "kind": number,
        "flags": flags,
        "epoch": epoch,
        "sequence": sequence,
        "metadata_bytes": len(metadata),
        "payload_bytes": len(payload),
        "checksum": zlib.crc32(metadata + payload),
    }
    unknown = wrong.keys() - fields.keys()
    if unknown:
        raise ValueError(f"no such header fields: {sorted(unknown)}")
    return HEADER.pack(*(fields | wrong).values()) + metadata + payload


def tensor_metadata(phase: str, tensor: str, shape: list[int], /, **changed: Any) -> bytes:
    """M3, for rank 0 and float32 unless changed."""
    keys = {"dtype": "<f4", "phase": phase, "rank": 0, "shape": shape, "tensor": tensor}
    return canonical(keys | changed)
