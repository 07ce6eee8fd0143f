"""Metadata by kind (docs/spec/metadata.md): exact keys, exact types, one typed record per kind.

Says what a value may be, not what it should be: the caller demands what its program predicts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from math import prod
from typing import Any, ClassVar, Final, Self, TypeAlias, TypeGuard

from errors import ContractError, MisuseError, ProtocolError
from wire.canonical import JsonObject, JsonValue, decode_canonical, encode_canonical, spelled
from wire.frame import Kind
from wire.limits import DIMENSIONS_MAX, STRING_CHARACTERS_MAX

ITEM_BYTES: Final = {"<f4": 4, "<f8": 8}
_SHOWN_CHARACTERS_MAX: Final = 120


def _is_count(value: JsonValue) -> bool:
    return type(value) is int and value >= 0


def _is_positive(value: JsonValue) -> bool:
    return type(value) is int and value > 0


def is_string(value: JsonValue) -> TypeGuard[str]:
    return type(value) is str and len(value) <= STRING_CHARACTERS_MAX


def _is_dtype(value: JsonValue) -> bool:
    return type(value) is str and value in ITEM_BYTES


def is_digest(value: JsonValue) -> TypeGuard[str]:
    return type(value) is str and len(value) == 64 and set(value) <= set("0123456789abcdef")


def _is_object(value: JsonValue) -> bool:
    return type(value) is dict


def _is_object_or_null(value: JsonValue) -> bool:
    return value is None or type(value) is dict


def _is_positive_shape(value: JsonValue) -> bool:
    return (
        isinstance(value, list | tuple)
        and 1 <= len(value) <= DIMENSIONS_MAX
        and all(_is_positive(length) for length in value)
    )


def is_shape(value: JsonValue) -> TypeGuard[list[int]]:
    return (
        isinstance(value, list | tuple)
        and 1 <= len(value) <= DIMENSIONS_MAX
        and all(_is_count(length) for length in value)
    )


Rule: TypeAlias = tuple[Callable[[JsonValue], bool], str]

_RANK: Final[Rule] = (_is_count, "an integer from 0")
_COUNT: Final[Rule] = (_is_count, "an integer from 0")
_POSITIVE: Final[Rule] = (_is_positive, "an integer from 1")
_STRING: Final[Rule] = (is_string, f"a string of at most {STRING_CHARACTERS_MAX} characters")
_DTYPE: Final[Rule] = (_is_dtype, "one of " + ", ".join(ITEM_BYTES))
_DIGEST: Final[Rule] = (is_digest, "64 lower-case hex digits")
_OBJECT: Final[Rule] = (_is_object, "an object")
_REPORT: Final[Rule] = (_is_object_or_null, "null or an object")
_SHAPE: Final[Rule] = (_is_positive_shape, f"1 to {DIMENSIONS_MAX} integers from 1")
_SHAPE_OR_EMPTY: Final[Rule] = (is_shape, f"1 to {DIMENSIONS_MAX} integers from 0")


@dataclass(frozen=True)
class Metadata:
    """Base of the records below; each has exactly the keys of its kind (M2)."""

    RULES: ClassVar[dict[str, Rule]] = {}

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The record that `data` spells.

        ProtocolError (M1) if it is not canonical; ContractError metadata on keys and types (M2).
        """
        value = decode_canonical(data)
        for key in sorted(cls.RULES.keys() | value.keys()):
            if key not in value:
                raise _difference(key, "nothing", "a value")
            if key not in cls.RULES:
                raise _difference(key, _shown(value[key]), "no such key")
            accepts, rule = cls.RULES[key]
            if not accepts(value[key]):
                raise _difference(key, _shown(value[key]), rule)
        return cls._from_object(value)

    @classmethod
    def _from_object(cls, value: dict[str, Any]) -> Self:
        return cls(**value)

    def to_bytes(self) -> bytes:
        """Canonical metadata bytes; MisuseError if a value cannot be spelled (M1)."""
        return encode_canonical({field.name: getattr(self, field.name) for field in fields(self)})


@dataclass(frozen=True)
class Hello(Metadata):
    byte_order: str
    dtype: str
    rank: int

    RULES: ClassVar[dict[str, Rule]] = {"byte_order": _STRING, "dtype": _STRING, "rank": _RANK}


@dataclass(frozen=True)
class Ack(Metadata):
    parameters: JsonObject
    program: str
    program_digest: str
    rank: int
    world_size: int

    RULES: ClassVar[dict[str, Rule]] = {
        "parameters": _OBJECT,
        "program": _STRING,
        "program_digest": _DIGEST,
        "rank": _RANK,
        "world_size": _POSITIVE,
    }


@dataclass(frozen=True)
class Load(Metadata):
    parameters: JsonObject
    phase: str
    rank: int

    RULES: ClassVar[dict[str, Rule]] = {"parameters": _OBJECT, "phase": _STRING, "rank": _RANK}


@dataclass(frozen=True)
class Command(Metadata):
    phase: str
    plan: JsonObject | None
    rank: int
    step: int

    RULES: ClassVar[dict[str, Rule]] = {
        "phase": _STRING,
        "plan": _REPORT,
        "rank": _RANK,
        "step": _COUNT,
    }


@dataclass(frozen=True)
class Fence(Metadata):
    phase: str
    rank: int
    report: JsonObject | None
    tensors: int

    RULES: ClassVar[dict[str, Rule]] = {
        "phase": _STRING,
        "rank": _RANK,
        "report": _REPORT,
        "tensors": _COUNT,
    }


@dataclass(frozen=True)
class Tensor(Metadata):
    """WEIGHT, INPUT, PARTIAL and REDUCTION."""

    dtype: str
    phase: str
    rank: int
    shape: tuple[int, ...]
    tensor: str

    RULES: ClassVar[dict[str, Rule]] = {
        "dtype": _DTYPE,
        "phase": _STRING,
        "rank": _RANK,
        "shape": _SHAPE,
        "tensor": _STRING,
    }

    @classmethod
    def _from_object(cls, value: dict[str, Any]) -> Self:
        return cls(**{**value, "shape": tuple(value["shape"])})

    @property
    def payload_bytes(self) -> int:
        return payload_bytes(self.shape, self.dtype)


@dataclass(frozen=True)
class Result(Tensor):
    """RESULT: a tensor that may be empty, with the program's report."""

    report: JsonObject | None
    step: int

    RULES: ClassVar[dict[str, Rule]] = {
        **Tensor.RULES,
        "report": _REPORT,
        "shape": _SHAPE_OR_EMPTY,
        "step": _COUNT,
    }


RECORDS: Final[dict[Kind, type[Metadata]]] = {
    Kind.HELLO: Hello,
    Kind.ACK: Ack,
    Kind.WEIGHT: Tensor,
    Kind.LOAD: Load,
    Kind.INPUT: Tensor,
    Kind.COMMAND: Command,
    Kind.PARTIAL: Tensor,
    Kind.FENCE: Fence,
    Kind.REDUCTION: Tensor,
    Kind.RESULT: Result,
}


def parse(kind: Kind, data: bytes) -> Metadata:
    """The record of `kind` that `data` spells; errors as in `Metadata.parse`."""
    return RECORDS[kind].parse(data)


def parse_tensor(kind: Kind, data: bytes) -> Tensor:
    """As `parse`, for a kind that carries a tensor."""
    return (Result if kind is Kind.RESULT else Tensor).parse(data)


def payload_bytes(shape: tuple[int, ...], dtype: str) -> int:
    """M3: elements times element size, as an exact integer."""
    return prod(shape) * ITEM_BYTES[dtype]


def demand(received: bytes, agreed: bytes) -> None:
    """M5: the received metadata must be the agreed bytes; both must be canonical.

    ContractError metadata names the first differing key in sorted order and both values.
    """
    if received == agreed:
        return
    try:
        ours = decode_canonical(agreed)
    except ProtocolError as error:
        raise MisuseError(f"the agreed metadata is not canonical: {error.message}") from error
    theirs = decode_canonical(received)
    for key in sorted(theirs.keys() | ours.keys()):
        if key not in theirs:
            raise _difference(key, "nothing", _shown(ours[key]))
        if key not in ours:
            raise _difference(key, _shown(theirs[key]), "no such key")
        # Spelled, because 1 == True in Python and not on the wire.
        if spelled(theirs[key]) != spelled(ours[key]):
            raise _difference(key, _shown(theirs[key]), _shown(ours[key]))


def _shown(value: JsonValue) -> str:
    text = spelled(value)
    if len(text) <= _SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:_SHOWN_CHARACTERS_MAX]}... ({len(text)} characters)"


def _difference(key: str, received: str, agreed: str) -> ContractError:
    return ContractError("metadata", f"{key}: received {received}, agreed {agreed}")
