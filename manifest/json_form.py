"""The recorded form of a manifest, manifest.json: canonical JSON with every field, one line.

Canonical as in docs/spec/metadata.md, M1: keys sorted, no spaces, integers below 2^53, ASCII. Equal
manifests are equal bytes. An unused group is null. It must not know what the fields mean.
"""

from __future__ import annotations

import json
from typing import Final

from errors import ConfigError, ConfigProblem
from manifest.fields import FIELDS, GROUPS, Settings, group_of
from manifest.value_rules import FieldType, Value, shown

# A manifest with every field at its longest is below 12 KiB.
JSON_BYTES_MAX: Final = 65_536


def write_json(settings: Settings) -> bytes:
    """The canonical bytes of completed `settings`, with a final line break."""
    document: dict[str, object] = dict.fromkeys(GROUPS)
    for path, value in settings.items():
        group = group_of(path)
        plain = list(value) if isinstance(value, tuple) else value
        if not group:
            document[path] = plain
            continue
        members = document[group] or {}
        document[group] = members
        if isinstance(members, dict):
            members[path.removeprefix(group + ".")] = plain
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii") + b"\n"


def read_json_settings(data: bytes) -> Settings:
    """The settings that write_json wrote as `data`. Raises ConfigError for any other bytes."""
    document = _parse(data)
    settings: Settings = {}
    problems = []
    for field in FIELDS:
        group = group_of(field.path)
        holder = document.get(group) if group else document
        name = field.path.removeprefix(group + ".")
        if holder is None:
            continue
        if not isinstance(holder, dict) or name not in holder:
            problems.append(ConfigProblem(field.path, "(missing)", "must be there"))
            continue
        value = _convert(field.type, holder[name])
        if value is None:
            rule = f"must be {field.type.value}"
            problems.append(ConfigProblem(field.path, shown(holder[name]), rule))
        else:
            settings[field.path] = value
    if problems:
        raise ConfigError(problems)
    if write_json(settings) != data:
        raise ConfigError.single("manifest.json", "its bytes", "are not the canonical form")
    return settings


def _parse(data: bytes) -> dict[str, object]:
    if len(data) > JSON_BYTES_MAX:
        raise ConfigError.single("manifest.json", f"{len(data)} bytes", f"limit {JSON_BYTES_MAX}")
    try:
        document = json.loads(data.decode("ascii"))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        raise ConfigError.single("manifest.json", "its bytes", "are not a JSON object in ASCII")
    return document


def _convert(kind: FieldType, value: object) -> Value | None:
    match kind:
        case FieldType.TEXT:
            return value if isinstance(value, str) else None
        case FieldType.SWITCH:
            return value if isinstance(value, bool) else None
        case FieldType.INTEGER:
            return value if type(value) is int else None
        case FieldType.INTEGERS:
            if not isinstance(value, list) or any(type(item) is not int for item in value):
                return None
            return tuple(value)
