"""One spelling per value."""

from __future__ import annotations

import hashlib
import math

import pytest

from program.canonical import canonical_json, digest


def test_keys_are_sorted_and_nothing_is_padded() -> None:
    assert canonical_json({"b": [1, None, "\u00e9"], "a": {}}) == b'{"a":{},"b":[1,null,"\\u00e9"]}'


def test_digest_is_sha256_of_the_bytes() -> None:
    assert digest([1]) == hashlib.sha256(b"[1]").hexdigest()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_no_spelling_for_what_json_lacks(value: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(value)
