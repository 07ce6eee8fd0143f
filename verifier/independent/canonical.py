"""Canonical JSON (metadata.md M1), read strictly and within bounds set before anything is built."""

from __future__ import annotations

import json
import re
from typing import Any

MAX_DEPTH = 8
INTEGER_LIMIT = 2**53
# Far above any file of a valid package, far below what would hurt: 4 MiB of "{}," is a million
# objects.
MAX_VALUES = 100_000

# An escaped pair is one token, so that a quote behind a backslash doesn't end its string.
_STRUCTURE = re.compile(r"\\.|[\"\[\]{},]", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|.)", re.DOTALL)
_MAX_INTEGER_CHARS = len(str(-INTEGER_LIMIT))


class CanonicalError(ValueError):
    """Bytes that are not canonical JSON; `code` is the protocol code of frame.md F7 step 7."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def encode(value: Any) -> bytes:
    """The one canonical spelling of a JSON value."""
    return json.dumps(
        value, ensure_ascii=True, allow_nan=False, sort_keys=True, separators=(",", ":")
    ).encode("ascii")


def decode_object(data: bytes) -> dict[str, Any]:
    """The object that `data` spells canonically.

    Raises:
        CanonicalError: `protocol.malformed` where the bytes are not JSON, not an object, or break a
            rule of type, range or depth; `protocol.not_canonical` where the spelling is another.
    """
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError as error:
        raise _malformed(f"byte {error.start} is not ASCII") from None
    _bound_structure(text)
    _refuse_lone_surrogates(text)
    duplicates: list[str] = []

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) != len(pairs):
            duplicates.append("an object repeats a key")
        return made

    try:
        value = json.loads(
            text,
            object_pairs_hook=unique,
            parse_int=_integer,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except CanonicalError:
        raise
    except (ValueError, RecursionError) as error:
        raise _malformed(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise _malformed("not a JSON object")
    if duplicates:
        raise CanonicalError("protocol.not_canonical", duplicates[0])
    if encode(value) != data:
        raise CanonicalError("protocol.not_canonical", "JSON, but not in the canonical spelling")
    return value


def _bound_structure(text: str) -> None:
    """Refuses deep or huge structures by their brackets and commas, before any is built."""
    depth = values = 0
    in_string = False
    for match in _STRUCTURE.finditer(text):
        token = match[0]
        if token == '"':
            in_string = not in_string
        elif in_string or token[0] == "\\":
            continue
        elif token in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                raise _malformed(f"nested deeper than {MAX_DEPTH}")
        elif token in "]}":
            depth -= 1
        values += 1
        if values > MAX_VALUES:
            raise _malformed(f"more than {MAX_VALUES} values")


def _refuse_lone_surrogates(text: str) -> None:
    """Looks at the escapes as spelled, so that a value that a duplicate key replaces counts too."""
    high_ends_at = -1
    for match in _ESCAPE.finditer(text):
        unit = int(match[1] or "0", 16)
        waiting, low = high_ends_at >= 0, 0xDC00 <= unit < 0xE000
        if waiting != low or (waiting and high_ends_at != match.start()):
            raise _malformed("a string has a lone surrogate")
        high_ends_at = match.end() if 0xD800 <= unit < 0xDC00 else -1
    if high_ends_at >= 0:
        raise _malformed("a string has a lone surrogate")


def _integer(text: str) -> int:
    if text == "-0":
        raise _malformed("-0 is not an integer of canonical JSON")
    if len(text) > _MAX_INTEGER_CHARS or abs(int(text)) >= INTEGER_LIMIT:
        raise _malformed(f"integer {text[:24]} is not below 2^53 in absolute value")
    return int(text)


def _refuse_number(text: str) -> Any:
    raise _malformed(f"{text[:24]} is not an integer")


def _malformed(message: str) -> CanonicalError:
    return CanonicalError("protocol.malformed", message)
