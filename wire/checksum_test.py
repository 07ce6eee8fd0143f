"""F5, against the definition: the reflected polynomial, bit by bit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.checksum import crc32


def by_definition(data: bytes) -> int:
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0xEDB88320 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


@pytest.mark.parametrize(("data", "value"), [(b"", 0), (b"123456789", 0xCBF43926)])
def test_known_values(data: bytes, value: int) -> None:
    assert crc32(data) == by_definition(data) == value


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=60))
def test_metadata_then_payload(metadata: bytes, payload: bytes) -> None:
    assert crc32(payload, crc32(metadata)) == by_definition(metadata + payload)
