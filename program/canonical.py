"""Canonical JSON bytes and their digest, as docs/spec/metadata.md (M1) defines them.

The wire package has the strict reader; here are only the few lines that both sides of a plan need
to agree on a digest. Callers pass integers, strings, null, arrays and objects; never floats.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

# Made once: `json.dumps` would make one for each of the many plans and tables of a step.
_ENCODER: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def canonical_json(value: object) -> bytes:
    """The one spelling of `value`: sorted keys, no spaces, ASCII."""
    return _ENCODER.encode(value).encode("ascii")


def digest(value: object) -> str:
    """SHA-256 of the canonical bytes, 64 hexadecimal digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()
