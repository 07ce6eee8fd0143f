"""The parameters of one body, taken one by one with their types; what is left over is unknown.

`null` is the same as absent, as the public interfaces have it. Nothing is converted: `true` is no
integer, `1.0` is none either, and an integer counts as a real number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from errors import RequestError

_SHOWN_CHARACTERS = 60


class Fields:
    """Raises RequestError (request.unknown, request.missing, request.type, request.range)."""

    def __init__(self, body: Mapping[str, object], within: str = "") -> None:
        self._left = dict(body)
        self._within = within

    def name(self, key: str) -> str:
        """How messages name a key of this object."""
        return f"{self._within}.{key}" if self._within else key

    def take(self, key: str) -> object:
        """The value, or None when it is absent."""
        return self._left.pop(key, None)

    def boolean(self, key: str) -> bool:
        """False when absent."""
        value = self.take(key)
        if value is None:
            return False
        if type(value) is not bool:
            raise wrong_type(self.name(key), value, "must be true or false")
        return value

    def integer(self, key: str, low: int, high: int) -> int | None:
        """None when absent."""
        value = self.take(key)
        if value is None:
            return None
        if type(value) is not int:
            raise wrong_type(self.name(key), value, "must be an integer")
        if not low <= value <= high:
            rule = f"must be at least {low} and at most {high}"
            raise out_of_range(self.name(key), value, rule)
        return value

    def text(self, key: str) -> str | None:
        """None when absent."""
        value = self.take(key)
        return None if value is None else sound_text(self.name(key), value)

    def fields(self, key: str) -> Fields | None:
        """An object's own fields; None when absent."""
        value = self.take(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise wrong_type(self.name(key), value, "must be an object")
        return Fields(value, self.name(key))

    def array(self, key: str, count_max: int) -> list[object]:
        """Empty when absent."""
        value = self.take(key)
        if value is None:
            return []
        if not isinstance(value, list):
            raise wrong_type(self.name(key), value, "must be an array")
        if len(value) > count_max:
            rule = f"must have at most {count_max} elements"
            raise out_of_range(self.name(key), len(value), rule)
        return value

    def end(self) -> None:
        """Every field has been taken."""
        for key in self._left:
            name = self.name(key[:_SHOWN_CHARACTERS])
            raise RequestError("request.unknown", f"{name}: is no parameter", param=name)


def sound_text(name: str, value: object) -> str:
    """A string that UTF-8 can carry. Raises RequestError."""
    if not isinstance(value, str):
        raise wrong_type(name, value, "must be a string")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise RequestError(
            "request.type", f"{name}: must have no half of a surrogate pair", param=name
        ) from None
    return value


def wrong_type(name: str, value: object, rule: str) -> RequestError:
    return RequestError("request.type", f"{name} = {_shown(value)}: {rule}", param=name)


def out_of_range(name: str, value: object, rule: str) -> RequestError:
    return RequestError("request.range", f"{name} = {_shown(value)}: {rule}", param=name)


def unsupported(name: str, rule: str) -> RequestError:
    return RequestError("request.unsupported", f"{name}: {rule}", param=name)


def missing(name: str) -> RequestError:
    return RequestError("request.missing", f"{name}: must be given", param=name)


def _shown(value: object) -> str:
    """Short, whatever it holds, and spelled as in the body."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if isinstance(value, int) and abs(value) >= 2**128:
        # It may have more digits than str() converts.
        return "an integer of more than 128 bits"
    if isinstance(value, str):
        value = value[:_SHOWN_CHARACTERS]
    return json.dumps(value)
