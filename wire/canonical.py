"""Canonical JSON (docs/spec/metadata.md M1): one spelling per meaning.

A reader parses, encodes again and compares. What the comparison alone would let through (floats,
large integers, deep nesting, lone surrogates) is refused by type or range first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn, TypeAlias

from errors import MisuseError, ProtocolError
from wire.limits import INTEGER_MAX, NESTING_MAX

JsonValue: TypeAlias = "bool | int | str | Sequence[JsonValue] | Mapping[str, JsonValue] | None"
JsonObject: TypeAlias = Mapping[str, JsonValue]

_ENCODER: Final = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)
_INTEGER_DIGITS: Final = len(str(-INTEGER_MAX))
# A string that never ends matches up to the end, and nothing is given back: a hostile text costs
# one pass, not one per quote.
_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\(?:.|\Z)[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
# A pair of surrogates, or else half of one (the group), or else any other escape.
_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F])|.)", re.DOTALL
)
_INNERMOST: Final = re.compile(rb"\[[^\[\]{}]*\]|\{[^\[\]{}]*\}")
_BRACKET: Final = re.compile(rb"[\[\]{}]")


class _BrokenRuleError(ValueError):
    """A rule of M1 that is not about spelling; never leaves this module."""


def encode_canonical(value: JsonObject) -> bytes:
    """The canonical bytes of one of our own objects; MisuseError if it breaks M1."""
    _demand_encodable(value, NESTING_MAX)
    return _ENCODER.encode(value).encode("ascii")


def spelled(value: JsonValue) -> str:
    """The canonical text of one decoded value, for messages and comparisons."""
    return _ENCODER.encode(value)


def decode_canonical(data: bytes) -> dict[str, JsonValue]:
    """The object that canonical `data` spells; ProtocolError malformed or not_canonical."""
    try:
        _demand_shallow(data)
        _demand_whole_characters(data)
        value = _DECODER.decode(data.decode("ascii"))
    except ValueError as error:
        raise ProtocolError("malformed", f"metadata breaks M1: {error}") from None
    if type(value) is not dict:
        raise ProtocolError("malformed", "metadata breaks M1: it is not a JSON object")
    if spelled(value).encode("ascii") != data:
        raise ProtocolError("not_canonical", "metadata is JSON in another spelling than M1's")
    return value


def _demand_shallow(data: bytes) -> None:
    """Refuse deep nesting before parsing, by removing the innermost brackets level by level."""
    brackets = _STRING.sub(b"", data)
    for _ in range(NESTING_MAX):
        brackets, removed = _INNERMOST.subn(b"", brackets)
        if not removed:
            break
    if _BRACKET.search(brackets):
        raise _BrokenRuleError(f"brackets are unbalanced or nested more than {NESTING_MAX} deep")


def _demand_whole_characters(data: bytes) -> None:
    """Refuse lone surrogates, which are no characters and have no UTF-8 spelling."""
    if b"\\u" in data and any(match[1] for match in _ESCAPE.finditer(data)):
        raise _BrokenRuleError("a string holds a lone surrogate")


def _parse_integer(digits: str) -> int:
    if digits == "-0":
        raise _BrokenRuleError("-0 is not an integer")
    if len(digits) > _INTEGER_DIGITS or abs(number := int(digits)) > INTEGER_MAX:
        raise _BrokenRuleError(f"integer of {len(digits)} characters exceeds {INTEGER_MAX}")
    return number


def _refuse_float(text: str) -> NoReturn:
    raise _BrokenRuleError(f"not an integer: {text[:40]}")


_DECODER: Final = json.JSONDecoder(
    parse_int=_parse_integer, parse_float=_refuse_float, parse_constant=_refuse_float
)


def _demand_encodable(value: object, levels: int) -> None:
    """MisuseError unless `value` can be spelled in at most `levels` more levels of nesting."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, int):
        if abs(value) > INTEGER_MAX:
            raise MisuseError(f"metadata integer {value} exceeds {INTEGER_MAX}")
    elif isinstance(value, str):
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise MisuseError(f"metadata string {value!a} holds a lone surrogate")
    elif not isinstance(value, list | tuple | dict):
        raise MisuseError(f"metadata cannot hold a {type(value).__name__}")
    elif levels == 0:
        raise MisuseError(f"metadata is nested more than {NESTING_MAX} deep")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise MisuseError(f"metadata key {key!r} is not a string")
            _demand_encodable(key, levels)
            _demand_encodable(item, levels - 1)
    else:
        for item in value:
            _demand_encodable(item, levels - 1)
