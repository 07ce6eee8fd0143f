"""Canonical JSON against the shared vectors, and its bounds."""

from __future__ import annotations

import json

import canonical
import pytest
import vectors
from hypothesis import assume, given
from hypothesis import strategies as st

SPELLING = vectors.by_id("metadata", rule="spelling")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner),
    max_leaves=8,
)


@pytest.mark.parametrize("name", SPELLING)
def test_spelling(name: str) -> None:
    vector = SPELLING[name]
    data = bytes.fromhex(vector["data"])
    if vector["result"] == "valid":
        assert canonical.encode(canonical.decode_object(data)) == data
    else:
        with pytest.raises(canonical.CanonicalError) as caught:
            canonical.decode_object(data)
        assert caught.value.code == vector["code"]


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_what_is_encoded_decodes_to_itself(value: dict[str, object]) -> None:
    assume(depth(value) <= canonical.MAX_DEPTH)
    assert canonical.decode_object(canonical.encode(value)) == value


def depth(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


@given(st.binary(max_size=40))
def test_any_bytes_decode_or_are_refused(data: bytes) -> None:
    try:
        value = canonical.decode_object(data)
    except canonical.CanonicalError:
        return
    assert json.loads(data) == value


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":[' + b"{}," * 200_000 + b"{}]}",
        b'{"a":' + b"9" * 100_000 + b"}",
        b'{"a":"' + b'\\"' * 100_000,
        b'{"a":"' + b"\\" * 99_999,
    ],
    ids=["deep", "wide", "long number", "open string of quotes", "open string of backslashes"],
)
def test_hostile_input_is_refused_quickly(data: bytes) -> None:
    with pytest.raises(canonical.CanonicalError) as caught:
        canonical.decode_object(data)
    assert caught.value.code == "protocol.malformed"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"a":"\\ud83d"}', "protocol.malformed"),
        ('{"a":"\\ude00"}', "protocol.malformed"),
        ('{"a":"\\ud83d\\n"}', "protocol.malformed"),
        ('{"a":"\\ud83dx\\ude00"}', "protocol.malformed"),
        ('{"a":"\\ud83d","a":1}', "protocol.malformed"),
        ('{"a":1.5,"a":1}', "protocol.malformed"),
        ('{"a":1,"a":1}', "protocol.not_canonical"),
    ],
)
def test_codes(text: str, code: str) -> None:
    with pytest.raises(canonical.CanonicalError) as caught:
        canonical.decode_object(text.encode("ascii"))
    assert caught.value.code == code
