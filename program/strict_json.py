"""JSON from outside, read strictly: bounded size, no duplicate keys, finite numbers.

Used for the files of a checkpoint folder. It must not know what a document means; the readers of
config.json, of an index and of a safetensors header check keys and values themselves.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Final, NoReturn, cast

from errors import ConfigError

JsonObject = dict[str, object]

_SHOWN_CHARACTERS: Final = 80


def parse_object(data: bytes, source: str, *, bytes_max: int, code: str) -> JsonObject:
    """The JSON object that `data` holds.

    source: what the data is, for messages (a file name). code: the error code of a refusal.
    Raises ConfigError when the data is larger than bytes_max, is not UTF-8, is not one JSON object,
    repeats a key, nests deeper than the parser can follow, or holds a number that is not finite.
    """

    def refuse(value: object, rule: str) -> NoReturn:
        raise ConfigError.single(source, shown(value), rule, code)

    def unique(pairs: list[tuple[str, object]]) -> JsonObject:
        result = dict(pairs)
        if len(result) < len(pairs):
            counts = Counter(name for name, _ in pairs)
            refuse(counts.most_common(1)[0][0], "must not repeat a key")
        return result

    def number(text: str) -> float:
        value = float(text)
        if not math.isfinite(value):
            refuse(text, "must hold finite numbers only")
        return value

    if len(data) > bytes_max:
        refuse(f"{len(data)} bytes", f"must be at most {bytes_max} bytes")
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=unique,
            parse_float=number,
            parse_constant=number,
        )
    except UnicodeDecodeError as error:
        raise ConfigError.single(
            source, f"byte {error.start}", "must be UTF-8 text", code
        ) from error
    except RecursionError as error:
        raise ConfigError.single(source, "", "must not nest so deep", code) from error
    except ValueError as error:  # not JSON, or an integer of more digits than Python converts
        raise ConfigError.single(source, shown(str(error)), "must be JSON", code) from error
    if not isinstance(value, dict):
        refuse(value, "must be one JSON object")
    return cast(JsonObject, value)


def shown(value: object) -> str:
    """A value as messages show it: one line, cut to a length a person reads."""
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
