"""M1. Contract: any bytes give an object or ProtocolError malformed or not_canonical, and an
accepted object encodes to exactly the bytes it came from."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from errors import MisuseError, ProtocolError
from testdata.vectors.reading import vectors
from wire.canonical import JsonValue, decode_canonical, encode_canonical, spelled
from wire.limits import INTEGER_MAX, METADATA_BYTES_MAX, NESTING_MAX

SPELLING = [vector for vector in vectors("metadata.json") if vector["rule"] == "spelling"]


def code_of(data: bytes) -> str | None:
    """None when `data` is canonical."""
    try:
        value = decode_canonical(data)
    except ProtocolError as error:
        return error.code
    assert encode_canonical(value) == data
    return None


@pytest.mark.parametrize("vector", SPELLING, ids=lambda vector: str(vector["id"]))
def test_vector(vector: dict[str, Any]) -> None:
    assert code_of(bytes.fromhex(vector["data"])) == vector["code"]


HOSTILE = {
    "brackets": b"[" * METADATA_BYTES_MAX,
    "objects": b'{"a":' * (METADATA_BYTES_MAX // 5),
    "closed brackets": b"[" * 32_768 + b"]" * 32_768,
    "quotes": b'"' * METADATA_BYTES_MAX,
    "escaped quotes": b'"' + b'\\"' * 32_767,
    "escaped quotes and a backslash": b'"' + b'\\"' * 32_767 + b"\\",
    "backslashes": b'{"a":"' + b"\\" * 65_000,
    "surrogates": b'{"a":"' + b"\\ud800" * 10_000 + b'"}',
    "digits": b'{"a":' + b"9" * 65_000 + b"}",
    "negative digits": b'{"a":-' + b"9" * 65_000 + b"}",
    "fraction": b'{"a":0.' + b"9" * 65_000 + b"}",
    "exponent": b'{"a":1e' + b"9" * 65_000 + b"}",
    "zero bytes": bytes(METADATA_BYTES_MAX),
    "spaces": b" " * METADATA_BYTES_MAX,
    "pairs": b"[]" * 32_768,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_bytes_are_refused_in_little_time(data: bytes) -> None:
    began = time.process_time()
    assert code_of(data) == "protocol.malformed"
    # Linear work takes milliseconds; one quadratic pass over 64 KiB takes tens of seconds.
    assert time.process_time() - began < 5


def test_the_stack_is_not_used_for_nesting() -> None:
    """Near the recursion limit, a legal object is still legal and a hostile one still refused."""

    def deep(levels: int) -> tuple[str | None, str | None]:
        if levels:
            return deep(levels - 1)
        return code_of(b'{"a":[[0]]}'), code_of(b"[" * 60_000)

    assert deep(600) == (None, "protocol.malformed")


@pytest.mark.parametrize(
    "value",
    [
        {"a": 1.0},
        {"a": float("nan")},
        {"a": INTEGER_MAX + 1},
        {"a": -INTEGER_MAX - 1},
        {"a": b"bytes"},
        {"a": {1: 2}},
        {"a": {"b", "c"}},
        {"a": "\ud800"},
        {"\udfff": 1},
        {"a": object()},
    ],
    ids=repr,
)
def test_what_cannot_be_spelled_is_a_misuse(value: Any) -> None:
    with pytest.raises(MisuseError):
        encode_canonical(value)


def nested(levels: int) -> dict[str, JsonValue]:
    inner: JsonValue = 0
    for _ in range(levels - 1):
        inner = [inner]
    return {"a": inner}


def test_own_nesting_is_bounded_alike() -> None:
    assert decode_canonical(encode_canonical(nested(NESTING_MAX))) == nested(NESTING_MAX)
    with pytest.raises(MisuseError):
        encode_canonical(nested(NESTING_MAX + 1))


def test_a_tuple_is_an_array() -> None:
    assert encode_canonical({"shape": (1, 2)}) == b'{"shape":[1,2]}'


def test_spelled_tells_true_from_1() -> None:
    assert (spelled(True), spelled(1), spelled(None)) == ("true", "1", "null")


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-INTEGER_MAX, INTEGER_MAX)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=3
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), json_values, max_size=4))
def test_what_we_encode_we_decode(value: dict[str, JsonValue]) -> None:
    try:
        data = encode_canonical(value)
    except MisuseError:
        return
    assert decode_canonical(data) == value


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=60) | st.text('{}[]",:\\u0d8e1-. \n', max_size=40).map(str.encode))
def test_any_bytes_give_an_object_or_a_documented_error(data: bytes) -> None:
    assert code_of(data) in (None, "protocol.malformed", "protocol.not_canonical")


@settings(max_examples=300, deadline=None)
@given(json_values, st.booleans(), st.sampled_from([None, 1]))
def test_another_spelling_is_not_canonical(
    value: JsonValue, ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps({"z": value, "a": value}, ensure_ascii=ascii_only, indent=indent)
    assert code_of(text.encode("utf-8")) in ("protocol.malformed", "protocol.not_canonical")
