"""Reads the text form of a manifest (protobuf text format), and reports every problem in it.

Protobuf's own parser stops at the first unknown field and accepts several spellings of a number
(0x10, 010); this reader walks protobuf's tokens, goes on after a problem that leaves the structure
clear, and takes integers in plain decimal only. What it accepts, protobuf's parser reads the same:
a property test holds the two against each other. It must not know ranges or defaults.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from google.protobuf import text_format

from errors import ConfigError, ConfigProblem
from manifest.fields import FIELD_BY_PATH, GROUPS, Settings
from manifest.value_rules import FieldType, Value, parse_integer, shown

# A manifest with every field written is 1 KiB; this leaves room for comments.
TEXT_BYTES_MAX: Final = 65_536

_CLOSING: Final = {"{": "}", "<": ">"}


def read_settings(data: bytes) -> tuple[Settings, list[ConfigProblem], frozenset[str]]:
    """The fields that `data` gives, the problems found, and the known fields that were unreadable.

    Raises ConfigError `config.syntax` with the line when the structure itself cannot be followed,
    `config.invalid` when it is too large or not UTF-8.
    """
    if len(data) > TEXT_BYTES_MAX:
        raise ConfigError.single("manifest", f"{len(data)} bytes", f"limit is {TEXT_BYTES_MAX}")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError.single("manifest", f"byte {error.start}", "is not UTF-8") from None
    reader = _Reader(text)
    reader.read_fields("", "")
    return reader.settings, reader.problems, frozenset(reader.unreadable)


class _Reader:
    """Recursive descent over the tokens; groups nest one deep, so the depth is bounded."""

    def __init__(self, text: str) -> None:
        self.settings: Settings = {}
        self.problems: list[ConfigProblem] = []
        self.unreadable: set[str] = set()
        self._seen: set[str] = set()
        self._line = 0
        self._tokens = text_format.Tokenizer(self._counted(text.split("\n")))

    def read_fields(self, prefix: str, closing: str) -> None:
        """Fields up to `closing` (the end of the text when empty), which is left unread."""
        while self._tokens.token != closing:
            if not self._tokens.token:
                raise self._syntax(f"the {closing} of a group is missing")
            self._read_field(prefix)
            if not self._tokens.TryConsume(","):
                self._tokens.TryConsume(";")

    def _counted(self, lines: list[str]) -> Iterator[str]:
        """Lines for the tokenizer, which takes one only when its next token is there."""
        for number, line in enumerate(lines, 1):
            self._line = number
            yield line

    def _read_field(self, prefix: str) -> None:
        name = self._tokens.token
        if not (name[0].isalpha() or name[0] == "_"):
            raise self._syntax("a field name was expected")
        path, line = prefix + name, self._line
        self._tokens.NextToken()
        colon = self._tokens.TryConsume(":")
        if self._tokens.token in _CLOSING:
            self._read_group(path, line)
        elif not colon:
            raise self._syntax("a colon was expected after the field name")
        else:
            self._read_value(path, line)

    def _read_group(self, path: str, line: int) -> None:
        closing = _CLOSING[self._tokens.token]
        self._tokens.NextToken()
        if path in GROUPS and path not in self._seen:
            self._seen.add(path)
            if self._tokens.token == closing:
                self._refuse(path, "{}", line, "must not be empty")
            self.read_fields(path + ".", closing)
            self._tokens.NextToken()
            return
        if path in GROUPS:
            self._refuse(path, "{...}", line, "is given twice")
        elif path in FIELD_BY_PATH:
            self._refuse(path, "{...}", line, f"must be {FIELD_BY_PATH[path].type.value}")
        else:
            self._refuse(path, "{...}", line, "is not a field of a manifest")
        self._skip_group(closing)

    def _skip_group(self, closing: str) -> None:
        """Passes over a refused group, however deep, without recursion."""
        expected = [closing]
        while expected:
            token = self._tokens.token
            if not token:
                raise self._syntax(f"the {expected[-1]} of a group is missing")
            if token in _CLOSING:
                expected.append(_CLOSING[token])
            elif token == expected[-1]:
                expected.pop()
            elif token in _CLOSING.values():
                raise self._syntax(f"a {expected[-1]} was expected")
            self._tokens.NextToken()

    def _read_value(self, path: str, line: int) -> None:
        given = self._read_scalars()
        field = FIELD_BY_PATH.get(path)
        value = None if field is None else _convert(field.type, given)
        if path in GROUPS:
            self._refuse(path, given.shown(), line, "must be a group of fields in braces")
        elif field is None:
            self._refuse(path, given.shown(), line, "is not a field of a manifest")
        elif path in self._seen and field.type is not FieldType.INTEGERS:
            self._refuse(path, given.shown(), line, "is given twice")
        elif value is None:
            self._refuse(path, given.shown(), line, f"must be {field.type.value}")
        else:
            self._store(path, value)
        self._seen.add(path)

    def _store(self, path: str, value: Value) -> None:
        earlier = self.settings.get(path)
        if isinstance(earlier, tuple) and isinstance(value, tuple):
            value = earlier + value
        self.settings[path] = value

    def _read_scalars(self) -> _Given:
        if not self._tokens.TryConsume("["):
            return _Given((self._read_scalar(),), listed=False)
        scalars: list[_Scalar] = []
        while not self._tokens.TryConsume("]"):
            if scalars and not self._tokens.TryConsume(","):
                raise self._syntax("a comma or ] was expected")
            scalars.append(self._read_scalar())
        return _Given(tuple(scalars), listed=True)

    def _read_scalar(self) -> _Scalar:
        token = self._tokens.token
        if token[:1] in ("'", '"') and token:
            try:
                return _Scalar(self._tokens.ConsumeString(), quoted=True)
            except (text_format.ParseError, ValueError):
                raise self._syntax("this text in quotes cannot be read") from None
        if not (token[:1].isalnum() or token[:1] in ("_", "+", "-", ".")) or not token:
            raise self._syntax("a value was expected")
        self._tokens.NextToken()
        return _Scalar(token, quoted=False)

    def _refuse(self, path: str, given: str, line: int, rule: str) -> None:
        self.problems.append(ConfigProblem(shown(path), given, f"{rule} (line {line})"))
        self.unreadable.add(path)

    def _syntax(self, rule: str) -> ConfigError:
        token = shown(self._tokens.token) if self._tokens.token else "end of the manifest"
        return ConfigError.single(f"manifest line {self._line}", token, rule, "config.syntax")


@dataclass(frozen=True)
class _Scalar:
    """One value as written: a word or number, or the contents of a text in quotes."""

    text: str
    quoted: bool


@dataclass(frozen=True)
class _Given:
    """What follows a field's colon: one scalar, or a list of them in brackets."""

    scalars: tuple[_Scalar, ...]
    listed: bool

    def shown(self) -> str:
        text = shown(",".join(scalar.text for scalar in self.scalars))
        return f"[{text}]" if self.listed else text


def _convert(kind: FieldType, given: _Given) -> Value | None:
    """The value of the field's type; None when it is written as another type."""
    if kind is FieldType.INTEGERS:
        numbers = [parse_integer(scalar.text) for scalar in given.scalars if not scalar.quoted]
        integers = tuple(number for number in numbers if number is not None)
        return integers if len(integers) == len(given.scalars) else None
    if given.listed:
        return None
    scalar = given.scalars[0]
    match kind:
        case FieldType.TEXT:
            return scalar.text if scalar.quoted else None
        case FieldType.INTEGER:
            return None if scalar.quoted else parse_integer(scalar.text)
        case FieldType.SWITCH:
            words = {"true": True, "false": False}
            return None if scalar.quoted else words.get(scalar.text)
